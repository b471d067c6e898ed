/* SPDX-License-Identifier: Apache-2.0 */
/* What is behind a struct tsr_recording, and what all parts of its reader share. */
#ifndef TSR_RECORDING_DATA_H
#define TSR_RECORDING_DATA_H

#include "base/arena.h"
#include "base/scope.h"
#include "tersor/recording.h"
#include "text/named.h"

#define TSR_MANIFEST_NAME "manifest.json"

/* What a recording may take in memory: names of files and parameters, learning rates. */
#define TSR_RECORDING_ARENA_MAX (UINT64_C(512) << 20)

/* The number of a step goes up to the largest integer of a JSON file. */
#define TSR_STEP_MAX ((UINT64_C(1) << 48) - 1)

struct tsr_recording_data {
	struct tsr_recording pub; /* what callers see; must be first */
	struct tsr_arena *arena; /* of everything in it */
	struct tsr_open_options options;
	size_t nparams;
	const struct tsr_named *params; /* of all groups, sorted by name, with their group */
	const size_t *alike; /* per step: the first that has the same files */
};

/* Find the steps that have the same files: a file is in one step, or in steps that have the same files. */
enum tsr_status tsr_recording_find_alike(struct tsr_recording_data *r, struct tsr_err *err);

/* The first step with the files of step @index. */
size_t tsr_recording_alike(const struct tsr_recording *recording, size_t index);

/* TSR_E_LIMIT or TSR_E_NOMEM for the arena. */
enum tsr_status tsr_recording_nomem(const struct tsr_recording_data *r, struct tsr_err *err);

/* Fill a recording from its manifest, or from the names in a directory without one. */
enum tsr_status tsr_recording_read_manifest(struct tsr_recording_data *r, struct tsr_err *err);
enum tsr_status tsr_recording_list_steps(struct tsr_recording_data *r, struct tsr_err *err);

struct tsr_json;

/*
 * What a manifest, or another JSON object of this @format, says of the run: its optimizer, order and groups
 * of parameters.  @part: what messages call the object.
 */
enum tsr_status tsr_recording_read_run(struct tsr_recording_data *r, const char *path,
				       const struct tsr_json *root, const char *part,
				       const char *format, struct tsr_err *err);

/* A recording of nothing yet, to be closed with tsr_recording_close(); @options NULL: the defaults. */
enum tsr_status tsr_recording_new(const char *path, const struct tsr_open_options *options,
				  struct tsr_recording_data **ret, struct tsr_err *err);

/*
 * The number of the step in a file's name, the digits before its extension, if it has a name that a
 * step may have.
 */
bool tsr_recording_step_of(const char *name, uint64_t *step_ret);

/* Put the number of step @index into the message in @err, which may be NULL, unless it is there. */
void tsr_recording_name_step(const struct tsr_recording *r, size_t index, struct tsr_err *err);

/* TSR_E_IO if @path is one of the recording's files, or would be in its directory. */
enum tsr_status tsr_recording_check_not(const struct tsr_recording *r, const char *path,
					struct tsr_err *err);

TSR_OWNED_BY(tsr_recording_close, struct tsr_recording)

/* --- Gradients that the ranks of a run wrote separately, as one checkpoint -------------------- */

/**
 * tsr_recording_join() - Make one checkpoint of what ranks wrote of one step
 * @parts: @nparts of them, whose files the joined one takes over; still to be closed
 * @ret:   out: to be closed with tsr_checkpoint_close(); untouched on failure
 *
 * A tensor that is in several parts, or begins elsewhere than at 0, must say where in each of them
 * (docs/replay.md); its slices follow each other along one dimension without a gap.
 *
 * Return: TSR_OK, TSR_E_FORMAT, TSR_E_UNSUPPORTED, TSR_E_LIMIT or TSR_E_NOMEM.
 */
enum tsr_status tsr_recording_join(struct tsr_checkpoint **parts, size_t nparts,
				   struct tsr_checkpoint **ret, struct tsr_err *err);

/* Whether a part says where its tensors begin. */
bool tsr_recording_has_offsets(const struct tsr_checkpoint *part);

/* The gradients of a packed file as if it were a plain one, for those that are joined where they lie. */

/*
 * Replace a packed checkpoint of raw tensors by one with the same tensors and metadata, whose data is in a
 * file without a name, which is written when it is first read.  *part is NULL after a failure.
 */
enum tsr_status tsr_recording_plain_part(struct tsr_checkpoint **part, struct tsr_err *err);

#endif
