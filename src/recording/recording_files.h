/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the reader of recordings. */
#ifndef TSR_REPLAY_RECORDING_H
#define TSR_REPLAY_RECORDING_H

#include "base/arena.h"
#include "tersor/recording.h"

#define TSR_MANIFEST_NAME "manifest.json"

/* Limits on a manifest: its text, the JSON values in it. */
#define TSR_MANIFEST_NBYTES_MAX (UINT64_C(64) << 20)
#define TSR_MANIFEST_VALUES_MAX 2000000u

/* The number of a step goes up to the largest integer of a JSON file. */
#define TSR_STEP_MAX ((UINT64_C(1) << 48) - 1)

/* A parameter and its group. */
struct tsr_recorded_param {
	const char *name;
	size_t group;
};

/* What stands behind a struct tsr_recording. */
struct tsr_recording_data {
	struct tsr_recording pub; /* what callers see; must be first */
	struct tsr_arena *arena; /* of everything in it */
	struct tsr_open_options options;
	size_t nparams;
	const struct tsr_recorded_param *params; /* of all groups, sorted by name */
};

/* Fill a recording from the directory's manifest. */
enum tsr_status tsr_recording_read_manifest(struct tsr_recording_data *r, struct tsr_err *err);

/* Fill a recording from the names in a directory without one. */
enum tsr_status tsr_recording_list_steps(struct tsr_recording_data *r, struct tsr_err *err);

/*
 * The number of the step in a file's name, the digits before its extension, if it has a name that a
 * step may have.
 */
bool tsr_recording_step_of(const char *name, uint64_t *step_ret);

/* TSR_E_LIMIT or TSR_E_NOMEM for the arena. */
enum tsr_status tsr_recording_nomem(const struct tsr_recording_data *r, struct tsr_err *err);

/* "DIRECTORY/NAME", to be freed; NULL when out of memory. */
char *tsr_recording_path(const char *directory, const char *name);

/**
 * tsr_recording_join() - Make one checkpoint of what ranks wrote of one step
 * @parts: @nparts of them, whose files the joined one takes over; still to be closed
 * @ret:   out: to be closed with tsr_checkpoint_close(); untouched on failure
 *
 * A tensor that is in several parts, or begins elsewhere than at 0, must say where in each of them
 * (docs/recording.md); pieces follow each other along one dimension without a gap.
 *
 * Return: TSR_OK, TSR_E_FORMAT, TSR_E_UNSUPPORTED, TSR_E_LIMIT or TSR_E_NOMEM.
 */
enum tsr_status tsr_recording_join(struct tsr_checkpoint **parts, size_t nparts,
				   struct tsr_checkpoint **ret, struct tsr_err *err);

/* TSR_E_IO if @path is one of the recording's files, or would be in its directory. */
enum tsr_status tsr_recording_check_not(const struct tsr_recording *r, const char *path,
					struct tsr_err *err);

/* Let a message about step @index, which is in @err, name the step if it does not yet. */
void tsr_recording_name_step(const struct tsr_recording *r, size_t index, struct tsr_err *err);

/* Whether a part says where its tensors begin. */
bool tsr_recording_has_offsets(const struct tsr_checkpoint *part);

#endif
