/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_PACK_PACKING_H
#define TSR_PACK_PACKING_H

/* The outcomes of packing and unpacking; users of the library have the functions of tersor/pack.h. */

#include "base/fail.h"
#include "io/file.h"
#include "ckpt/checkpoint_model.h"
#include "container/writer.h"
#include "pack/outcome/moments.h"
#include "tersor/pack.h"

/* A delta that was written: what it says of its base, and its planes, TSR_PLANES_MAX of each tensor. */
struct tsr_written_delta {
	struct tsr_base_name base; /* without a name: it is none */
	char *name; /* that of the base, or NULL */
	struct tsr_written_plane *planes;
};

/* Make room, before the writer's files are in place, for what tsr_written_delta_take() notes. */
enum tsr_status tsr_written_delta_init(struct tsr_written_delta *d,
				       const struct tsr_base_name *base, size_t ntensors,
				       struct tsr_err *err);

/* Note how a writer that is done wrote a delta; nothing for other outputs. */
void tsr_written_delta_take(struct tsr_written_delta *d, const struct tsr_writer *w,
			    size_t ntensors);

/* Whether a plane of @ntensors differs from that of the base, and is not on its own. */
bool tsr_written_delta_differs(const struct tsr_written_delta *d, size_t ntensors);

void tsr_written_delta_free(struct tsr_written_delta *d);

/* Whether there is an outcome of packing: a bound may not be kept. */
static inline bool tsr_is_packed(enum tsr_status status)
{
	return tsr_is_written(status) || status == TSR_E_BOUND;
}

/* The outcome of tsr_pack(). */
struct tsr_packing {
	struct tsr_checkpoint *source; /* its tensors have their codings, hashes and errors */
	struct tsr_packed_tensor *tensors; /* one per tensor of the source */
	struct tsr_choice *choices; /* the same, of a packing that chose; else NULL */
	uint64_t source_nbytes; /* of the source's tensors in its files */
	uint64_t header_nbytes;
	uint64_t data_nbytes;
	uint64_t plain_nbytes; /* of all files if no plane were coded */
	unsigned generation;
	float eps; /* that updates were measured with */
	bool eps_known; /* the source says it */
	double lr; /* of the source's optimizer; 0: not known */
	struct tsr_moments_found moments;
	double bound; /* that codecs were chosen by; 0: there was no choice */
	struct tsr_written_delta delta;
};

/* The outcome of tsr_unpack() and tsr_convert(). */
struct tsr_unpacking {
	struct tsr_checkpoint *source;
	enum tsr_container container; /* that was written */
	uint64_t nbytes; /* of the files written */
	uint64_t plain_nbytes; /* of a packed checkpoint: if no plane were coded; else 0 */
	struct tsr_written_delta delta;
};

/*
 * Whether unpacking the packed file @path gives the safetensors file @original to the byte, in case their
 * tensors have the same elements: by size and header.
 */
enum tsr_status tsr_unpacks_to(const char *path, const struct tsr_open_options *open,
			       const struct tsr_file *original, bool *ret, struct tsr_err *err);

TSR_OWNED_BY(tsr_packing_free, struct tsr_packing)

TSR_OWNED_BY(tsr_unpacking_free, struct tsr_unpacking)

#endif
