/* SPDX-License-Identifier: Apache-2.0 */
/* What is behind a struct tsr_recording, and what all parts of its reader share. */
#ifndef TSR_RECORDING_DATA_H
#define TSR_RECORDING_DATA_H

#include "base/arena.h"
#include "tersor/recording.h"

#define TSR_MANIFEST_NAME "manifest.json"

/* What a recording may take in memory: names of files and parameters, learning rates. */
#define TSR_RECORDING_ARENA_MAX (UINT64_C(512) << 20)

/* The number of a step goes up to the largest integer of a JSON file. */
#define TSR_STEP_MAX ((UINT64_C(1) << 48) - 1)

/* A parameter and its group. */
struct tsr_recorded_param {
	const char *name;
	size_t group;
};

struct tsr_recording_data {
	struct tsr_recording pub; /* what callers see; must be first */
	struct tsr_arena *arena; /* of everything in it */
	struct tsr_open_options options;
	size_t nparams;
	const struct tsr_recorded_param *params; /* of all groups, sorted by name */
};

/* TSR_E_LIMIT or TSR_E_NOMEM for the arena. */
enum tsr_status tsr_recording_nomem(const struct tsr_recording_data *r, struct tsr_err *err);

/* "DIRECTORY/NAME", to be freed; NULL when out of memory. */
char *tsr_recording_path(const char *directory, const char *name);

/* TSR_E_IO if @path is one of the recording's files, or would be in its directory. */
enum tsr_status tsr_recording_check_not(const struct tsr_recording *r, const char *path,
					struct tsr_err *err);

#endif
