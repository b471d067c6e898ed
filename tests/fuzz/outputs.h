/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_TESTS_OUTPUTS_H
#define TSR_TESTS_OUTPUTS_H

/* Writing checkpoints below /mem/out, and what must hold of what was written. */
#include <stdio.h>

#include "fuzz.h"
#include "memory_files.h"
#include "tersor/compare.h"
#include "tersor/pack.h"

#define OUT MEMORY "/out"

static const struct tsr_run one_thread = { .threads = 1 };

/* How each kind of output is called there. */
static inline const char *output_path(enum tsr_container container)
{
	static const char *const paths[TSR_CONTAINER_COUNT] = { OUT "/o.safetensors", OUT "/o.pt", OUT "/o/",
								OUT "/o.npz", OUT "/o.npy" };

	return paths[container];
}

/* Nothing was written, and there is a reason.  @status may be a bound or a usage that cannot be. */
static inline void check_refused_output(enum tsr_status status, const struct tsr_err *err)
{
	if (status != TSR_E_USAGE)
		check_refusal(status, err);
	REQUIRE(memory_count(OUT) == 0);
}

/*
 * What was written is read again, and has as many tensors (SIZE_MAX: some), or more where tied ones are stored
 * under each name.  NumPy has no names for BF16 and FP8, so that reading them takes an option.
 */
static inline void check_output(const char *path, size_t ntensors, const struct tsr_open_options *options)
{
	const char *const paths[] = { path };
	struct tsr_open_options again = *options;
	struct tsr_checkpoint *c = NULL;
	struct tsr_err err;

	again.params = NULL;
	if (tsr_checkpoint_open(paths, 1, &again, &c, &err) != TSR_OK) {
		if (err.code == TSR_E_UNSUPPORTED && strstr(path, ".np"))
			return;
		fprintf(stderr, "an output is refused: %s\n", err.msg);
		abort();
	}
	if (ntensors != SIZE_MAX && tsr_checkpoint_ntensors(c) < ntensors) {
		fprintf(stderr, "%s: %zu tensors, expected %zu\n", path, tsr_checkpoint_ntensors(c),
			ntensors);
		abort();
	}
	tsr_checkpoint_close(c);
}

/* Convert to a container; a writer that accepts writes what its reader accepts. */
static inline bool convert_to(enum tsr_container container, uint64_t shard_nbytes, const char *input,
			      size_t ntensors, const struct tsr_open_options *open)
{
	struct tsr_write_options o = tsr_write_defaults();
	struct tsr_unpacking *u = NULL;
	struct tsr_err err;
	enum tsr_status status;
	char path[64];

	strcpy(path, output_path(container));
	o.container = container;
	o.max_shard_nbytes = shard_nbytes;
	o.open = open;
	memory_make_directory(OUT);
	status = tsr_convert(&input, 1, path, &o, &one_thread, &u, &err);
	if (status != TSR_OK) {
		REQUIRE(!u);
		check_refused_output(status, &err);
		return false;
	}
	if (memory_count(OUT) > 1 && container == TSR_CONTAINER_SAFETENSORS)
		strcpy(path, OUT "/o.safetensors.index.json");
	check_output(path, ntensors, open);
	tsr_unpacking_free(u);
	memory_remove(OUT);
	return true;
}

/* Pack, then unpack what was packed. */
static inline bool pack_and_unpack(const char *input, size_t ntensors, const struct tsr_open_options *open)
{
	static const char packed[] = OUT "/packed", unpacked[] = OUT "/unpacked";
	struct tsr_pack_options o = tsr_pack_defaults();
	struct tsr_packing *p = NULL;
	struct tsr_unpacking *u = NULL;
	struct tsr_err err;
	enum tsr_status status;

	o.open = open;
	o.min_elements = 1;
	memory_make_directory(OUT);
	status = tsr_pack(&input, 1, packed, &o, &one_thread, &p, &err);
	if (status != TSR_OK) {
		REQUIRE(!p);
		check_refused_output(status, &err);
		return false;
	}
	tsr_packing_free(p);
	check_output(packed, ntensors, open);
	status = tsr_unpack(packed, unpacked, NULL, &one_thread, &u, &err);
	REQUIRE(status == TSR_OK || status == TSR_E_UNSUPPORTED);
	tsr_unpacking_free(u);
	memory_remove(OUT);
	return true;
}

#endif
