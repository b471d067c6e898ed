/* SPDX-License-Identifier: Apache-2.0 */
/* A replay in progress: its parameters with their resident state, and what every file of it looks up. */
#ifndef TSR_REPLAY_REPLAYING_H
#define TSR_REPLAY_REPLAYING_H

#include "base/progress.h"
#include "base/tiles.h"
#include "ckpt/checkpoint_model.h"
#include "names/params/parameters.h"
#include "tersor/recording.h"
#include "replay/replay_result.h"
#include "step/step.h"

struct tsr_learned;

/* The most elements of a tile on the CPU; docs/replay.md names it, since sums are added by tile. */
#define TSR_REPLAY_TILE 65536u

/* The largest alignment of tiles: groups of two codecs may have little in common. */
#define TSR_REPLAY_ALIGN_MAX (UINT64_C(1) << 22)

/*
 * The arrays of a state: TSR_PLANES_MAX for the planes of each slot, and as many for the slots of the state
 * of the comparison in FP32.  SOAP, which has no AMSGrad, has its factors and bases where that has planes.
 */
#define TSR_REPLAY_FP32 (TSR_SLOTS * TSR_PLANES_MAX)
#define TSR_REPLAY_BASES (TSR_SLOT_MAX_VARIANCE * TSR_PLANES_MAX)
_Static_assert(TSR_BASES <= TSR_PLANES_MAX, "they are no more than planes");
#define TSR_REPLAY_ARRAYS (TSR_REPLAY_FP32 + TSR_PLANES_MAX)
_Static_assert((int)TSR_SLOTS <= TSR_PLANES_MAX, "an array of the comparison for each slot");

/* A parameter and its state, which is resident once it is loaded. */
struct tsr_replay_param {
	const char *name; /* of its weight in the checkpoint */
	const char *recorded; /* in the recording */
	/* What takes less than 8 bytes is in a row: there may be many. */
	unsigned group; /* of the recording */
	unsigned slots; /* what it keeps besides the weight: a mask of 1 << enum tsr_slot */
	uint32_t side[2]; /* of SOAP: rows and columns that have a basis; else 0 */
	enum tsr_dtype grad_dtype; /* of the gradient of the first step; F32 if that has none */
	bool fresh; /* it has no momentum yet */
	bool lossy; /* something was encoded with loss that was not so before */
	uint64_t numel;
	uint64_t rows, columns; /* of a matrix that is stepped as a whole; else 0 */
	size_t *basis; /* of SOAP: the tensors of their factors and bases; else NULL */
	uint64_t align; /* tiles are multiples of so many elements, as steps and codecs need */
	size_t tensor[TSR_SLOTS]; /* indices into the checkpoint's; SIZE_MAX: not there yet */
	size_t counter; /* the tensor that counts its steps; SIZE_MAX: none */
	struct tsr_value *scalar; /* the number that does, if no tensor does; NULL: none */
	struct tsr_coding coding[TSR_SLOTS]; /* codec NULL: the rule keeps no such slot */
	unsigned char *array[TSR_REPLAY_ARRAYS]; /* NULL until they are allocated */
	uint64_t count; /* steps taken */
	size_t nseen; /* steps that have a gradient for it */
	size_t first_missing; /* index of the first that has none, if any */
};

/* A replay in progress. */
struct tsr_replaying {
	const struct tsr_replay_options *options;
	const struct tsr_run *run;
	struct tsr_run whole; /* the same without parts, for what is done when they are joined */
	struct tsr_checkpoint *c;
	struct tsr_recording *recording;
	struct tsr_replay *result;
	size_t first; /* index of the first step in the recording; the result has their number */
	/*
	 * The recording's parameters as it lists them, or in the checkpoint's order if it does not; only to
	 * plan, without their states.
	 */
	size_t nlisted;
	struct tsr_replay_param *listed;
	size_t nparams;
	struct tsr_replay_param *params; /* those that are stepped, in the checkpoint's order */
	struct tsr_parameters parameters; /* the checkpoint's table of these, in the same order */
	struct tsr_named *by_recorded; /* params by their name in the recording */
	struct tsr_tiles tiles; /* of params, for work on the CPU */
	size_t longest; /* elements of the longest tile */
	struct tsr_progress progress; /* in bytes of gradients */
	struct tsr_replay_adding *adding; /* where new states go in the output; NULL: no output */
	struct tsr_replay_signing *signing; /* NULL: no signatures */
	struct tsr_replay_gpus *gpus; /* NULL: steps run on the CPU */
	/* The same steps in another state, with tiles and parameters like these; NULL: no more. */
	struct tsr_replaying *also;
	const char *form; /* what its state is called; NULL: there is one only */
	struct tsr_learned
		*learned; /* blocks and codebook of states in learned codecs; NULL: none needed */
	const float *codebook; /* of these, in the arena of @c */
	unsigned disk_file; /* of @c: the state that is on disk */
	size_t nunlearned; /* parameters that want such a state, and have no gradient to learn from */
	struct tsr_err *err;
};

/* The bytes of such an array; 0 where there is none, or it is another one. */
static inline uint64_t tsr_replay_basis_nbytes(const struct tsr_replay_param *p, unsigned array)
{
	const uint64_t n = array >= TSR_REPLAY_BASES && array < TSR_REPLAY_FP32 ? p->side[array % 2]
										: 0;

	return n * n * sizeof(float);
}

/* The planes of a slot. */
static inline unsigned char *const *tsr_replay_planes(const struct tsr_replay_param *p,
						      unsigned slot)
{
	return p->array + slot * TSR_PLANES_MAX;
}

/* A factor or basis of SOAP; NULL: it has none. */
static inline float *tsr_replay_basis(const struct tsr_replay_param *p, unsigned i)
{
	return p->basis ? (void *)p->array[TSR_REPLAY_BASES + i] : NULL;
}

/* The index of the parameter of this name in the recording, or SIZE_MAX. */
size_t tsr_replay_param_of(const struct tsr_replaying *r, const char *recorded);

/* Whether the recording lists the parameters of every group, in the order of its optimizer. */
bool tsr_replay_is_listed(const struct tsr_recording *recording);

/* Whether the state is looked at after every step. */
bool tsr_replay_looks(const struct tsr_replay_options *o);

bool tsr_replay_is_adam(const struct tsr_replaying *r);

/* Whether a state in this coding is plain FP32. */
bool tsr_replay_is_f32(const struct tsr_coding *coding);

/* Refuse a state that is not all plain FP32, which is expected @why. */
enum tsr_status tsr_replay_check_plain(const struct tsr_replaying *r, const char *why,
				       struct tsr_err *err);

/* Whether the checkpoint has a momentum or a variance of a parameter that the rule uses. */
bool tsr_replay_is_begun(const struct tsr_replay_param *p);

/*
 * Elements of the tiles of a parameter: whole tiles of the CPU, by which a comparison adds its sums, and
 * at most @most, which is TSR_REPLAY_TILE or more; or its alignment if that is more.
 */
uint64_t tsr_replay_tile_size(const struct tsr_replay_param *p, uint64_t most);

/* Floats that a step of the largest matrix needs, in whole cache lines; 0: none is stepped as a whole. */
size_t tsr_replay_matrix_work(const struct tsr_replaying *r);

/*
 * Cut all parameters into tiles of at most @most elements, or of their alignment if that is more.
 * *longest_ret: elements of the longest, rounded up to whole cache lines of FP32.
 */
enum tsr_status tsr_replay_cut(const struct tsr_replaying *r, uint64_t most,
			       struct tsr_tiles *tiles, size_t *longest_ret);

/* The coding of a slot for the step with this number: random bits differ from step to step. */
struct tsr_coding tsr_replay_coding_at(const struct tsr_coding *coding, uint64_t step);

/* Whether a parameter has array @i, which is of a comparison if there is one; its bytes for @n elements. */
bool tsr_replay_has_array(const struct tsr_replaying *r, const struct tsr_replay_param *p,
			  unsigned i);
uint64_t tsr_replay_array_nbytes(const struct tsr_replay_param *p, unsigned i, uint64_t n);

/* Where the slots of the comparison have element @first; NULL where there is none. */
void tsr_replay_fp32_at(unsigned char *const array[], uint64_t first, float *ret[TSR_SLOTS]);

/* Where the planes of a slot have element @first. */
void tsr_replay_planes_at(const struct tsr_coding *coding, unsigned char *const *plane,
			  uint64_t first, void **ret);

/* A tile of the state is not needed before the next window: one that is on disk leaves memory. */
void tsr_replay_leave_tile(const struct tsr_replaying *r, const struct tsr_tile *tile);

/* Add "N WHAT" to a list in words, unless @n is 0. */
void tsr_replay_put_count(char *text, size_t room, uint64_t n, const char *what);

#endif
