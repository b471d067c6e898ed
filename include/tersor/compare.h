/* SPDX-License-Identifier: Apache-2.0 */
/* Verifying a packed file, and comparing two checkpoints. */
#ifndef TERSOR_COMPARE_H
#define TERSOR_COMPARE_H

#include "tersor/api.h"
#include "tersor/checkpoint.h"
#include "tersor/measure.h"
#include "tersor/pack.h"
#include "tersor/run.h"
#include "tersor/status.h"

/* --- What is not a tensor --------------------------------------------------------------------- */

/* A value besides the tensors in which two checkpoints differ: texts that are safe to print. */
struct tsr_value_difference {
	const char *where; /* the keys that lead to it, such as "optimizer.param_groups.0.lr" */
	const char *a, *b; /* NULL: that side has none */
};

/* So many are listed; all are counted. */
#define TSR_VALUES_LISTED 100u

/* --- Verify --------------------------------------------------------------------------------- */

/* What to check a file against, and what to accept. */
struct tsr_verify_options {
	size_t size; /* of this struct: set by tsr_verify_defaults() */
	const char *const *against; /* the files that were packed, or NULL */
	unsigned nagainst;
	const struct tsr_bound *bounds; /* on the error against the original */
	unsigned nbounds;
	bool allow_nonfinite;
	bool strict; /* a record without a checksum is TSR_E_FORMAT */
	const struct tsr_open_options *open; /* NULL for tsr_open_defaults() */
};

/* What was found about one tensor. */
struct tsr_verified_tensor {
	uint64_t nonfinite; /* NaN or infinite elements */
	struct tsr_measured measure; /* against the original */
	const char *fault; /* what is wrong with it; NULL if it is sound */
	struct tsr_update_measured
		update; /* of a variance with its momentum; zeros: not measured */
	struct tsr_breach breach; /* likewise, of the original if there is one */
	double weight_step; /* of a packed weight; negative: not measured */
};

/* No original and no bounds; NaN and infinities are faults. */
TSR_API struct tsr_verify_options tsr_verify_defaults(void);

/* The outcome of tsr_verify(). */
struct tsr_verification;

/**
 * tsr_verify() - Read all of a checkpoint and check everything that can be checked
 * @path:    as for tsr_checkpoint_open()
 * @options: NULL for tsr_verify_defaults()
 * @run:     threads and progress; NULL: the calling thread only
 * @ret:     out: to be freed with tsr_verification_free(); set on TSR_OK and TSR_E_BOUND
 *
 * Checks the structure, the hash of every plane and that values are finite; with the original, also
 * that raw tensors are equal byte for byte, and that errors are as recorded and within the bounds.
 *
 * Return: TSR_OK if all is well; TSR_E_BOUND if the file is sound but its contents are not as
 * expected, with the first fault in @err; TSR_E_FORMAT if it is damaged; other failures.
 */
TSR_API enum tsr_status tsr_verify(const char *path, const struct tsr_verify_options *options,
				   const struct tsr_run *run, struct tsr_verification **ret,
				   struct tsr_err *err);
TSR_API void tsr_verification_free(struct tsr_verification *v);

/* What was verified.  Borrowed. */
TSR_API const struct tsr_checkpoint *tsr_verification_checked(const struct tsr_verification *v);

/* What was found about a tensor of tsr_verification_checked(), by its index; NULL past the end. */
TSR_API const struct tsr_verified_tensor *tsr_verification_tensor(const struct tsr_verification *v,
								  size_t index);

/* Tensors with a fault, missing ones included; and tensors that only the original has. */
TSR_API uint64_t tsr_verification_nfaults(const struct tsr_verification *v);
TSR_API uint64_t tsr_verification_nmissing(const struct tsr_verification *v);

/*
 * Values besides the tensors in which it differs from the original, as tsr_comparison_nvalues() has
 * them.  The file is then not as expected.
 */
TSR_API uint64_t tsr_verification_nvalues(const struct tsr_verification *v);
TSR_API const struct tsr_value_difference *tsr_verification_value(const struct tsr_verification *v,
								  size_t index);

/* --- Diff ----------------------------------------------------------------------------------- */

/* Which sides have a tensor, and whether they can be compared. */
enum tsr_diff_kind {
	TSR_DIFF_COMPARED, /* element by element */
	TSR_DIFF_ONLY_A,
	TSR_DIFF_ONLY_B,
	TSR_DIFF_SHAPE, /* both have it, in different shapes */
	TSR_DIFF_DTYPE, /* both have it, in types that cannot be compared */
};

/* How one tensor compares. */
struct tsr_diff_tensor {
	const char *name;
	enum tsr_diff_kind kind;
	const struct tsr_tensor *a, *b; /* NULL where absent */
	uint64_t different; /* elements whose value or bits differ */
	uint64_t nonfinite_different; /* those where one side is NaN or infinite */
	struct tsr_measured measure; /* of the other elements; floating-point tensors only */
	uint64_t worst; /* index of the element furthest off in ULP, or first different */
	double worst_a, worst_b;
	struct tsr_breach breach; /* with @steps: of a variance that became too small */
	bool exceeds; /* the tolerances */
	bool noted; /* only one side has it, which is no difference: see tsr_diff_options */
};

/* The outcome of tsr_diff(). */
struct tsr_comparison;

/**
 * struct tsr_diff_options - What counts as a difference
 * @tolerances: a tensor exceeds if it exceeds any of these, or if values differ of which one is not
 *              finite; without tolerances, every difference exceeds
 * @strict:     a tensor that one side lacks is always a difference.  Otherwise, between different
 *              containers, it is only noted if it is neither weight nor state, or if it is a state
 *              and the other side has no states at all
 * @steps:      B is A so many steps of Adam later: no variance may be smaller than beta2^steps leaves of it,
 *              which is a note of B; 0: not known
 * @open:       how to read both sides; NULL for tsr_open_defaults()
 * @open_b:     how to read B, where it is not as A; NULL: @open
 */
struct tsr_diff_options {
	size_t size; /* of this struct: set by tsr_diff_defaults() */
	const struct tsr_bound *tolerances;
	unsigned ntolerances;
	bool strict;
	uint64_t steps;
	const struct tsr_open_options *open;
	const struct tsr_open_options *open_b;
};

/* No tolerances: every difference exceeds. */
TSR_API struct tsr_diff_options tsr_diff_defaults(void);

/**
 * tsr_diff() - Compare two checkpoints tensor by tensor, packed or not
 * @a, @b:       files of each side, joined as by tsr_checkpoint_open()
 * @options:     NULL for tsr_diff_defaults()
 * @run:         threads and progress; NULL: the calling thread only
 * @ret:         out: to be freed with tsr_comparison_free(); untouched on failure
 *
 * FP32, FP16 and BF16 tensors are compared as FP32 values, packed ones decoded; all others by their
 * bytes.
 *
 * Return: TSR_OK, whether or not they differ; or whatever reading returns.
 */
TSR_API enum tsr_status tsr_diff(const char *const *a, unsigned na, const char *const *b,
				 unsigned nb, const struct tsr_diff_options *options,
				 const struct tsr_run *run, struct tsr_comparison **ret,
				 struct tsr_err *err);
TSR_API void tsr_comparison_free(struct tsr_comparison *c);

/*
 * Of the tensors that differ, the one that does most: in values that are not finite, then by its NMSE.  NULL:
 * none differs.
 */
TSR_API const struct tsr_diff_tensor *tsr_comparison_worst(const struct tsr_comparison *c);

/* Tensors in the order of @a, then those only in @b; NULL past the end. */
TSR_API size_t tsr_comparison_ntensors(const struct tsr_comparison *c);
TSR_API const struct tsr_diff_tensor *tsr_comparison_tensor(const struct tsr_comparison *c,
							    size_t index);

/* Tensors that differ in any way; and those of them that exceed the tolerances. */
TSR_API uint64_t tsr_comparison_ndiffering(const struct tsr_comparison *c);
TSR_API uint64_t tsr_comparison_nexceeding(const struct tsr_comparison *c);

/*
 * Values besides the tensors that differ, whatever the tolerances: of what was saved around the
 * tensors, if both have that, and metadata of safetensors.  The first of them, up to
 * TSR_VALUES_LISTED; NULL past the end.
 */
TSR_API uint64_t tsr_comparison_nvalues(const struct tsr_comparison *c);
TSR_API const struct tsr_value_difference *tsr_comparison_value(const struct tsr_comparison *c,
								size_t index);

#endif
