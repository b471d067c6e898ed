/* SPDX-License-Identifier: Apache-2.0 */
/* Packing the state of a running job from its memory, without a copy of it in FP32. */
#ifndef TERSOR_SAVING_H
#define TERSOR_SAVING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tersor/api.h"
#include "tersor/checkpoint.h"
#include "tersor/device.h"
#include "tersor/pack.h"
#include "tersor/run.h"
#include "tersor/status.h"

/*
 * A job plans, encodes its tensors into planes (here on the CPU, or with tersor/device.h where they are), and
 * goes on; the planes are written in the background.  The file decodes to the bits of one that tsr_pack()
 * makes of the same state, but records no error figures: nothing was decoded again.
 *
 * A plan is used by one thread at a time.
 */
struct tsr_saving;

/*
 * The state of a job: everything but the elements of its tensors.  Borrowed for the call that takes it.
 *
 * @name:     the start of messages, such as "the state to save"
 * @pickle:   what torch.save would pickle, of protocol 2 to 5, but in the place of tensor number i the call
 *            tersor.structure.hole(i, requires_grad, whether it is a torch.nn.Parameter)
 * @facts:    of each tensor, one after the other: its enum tsr_dtype, its dimensions, its sizes, its
 *            strides in elements.  Numbers alone, so that a binding can fill them in at once
 * @metadata: @nmeta entries, as a safetensors file has them
 * @named:    the pickle is a dict of tensors by name, as a safetensors file has them: it is no structure to
 *            be kept
 */
struct tsr_job_state {
	const char *name;
	const void *pickle;
	size_t nbytes;
	const uint64_t *facts;
	size_t ntensors;
	const struct tsr_meta *meta;
	size_t nmeta;
	bool named;
};

/**
 * tsr_saving_plan() - Plan how a state is packed
 * @state:   no element is read, so what other tools compressed stays as it is
 * @options: codings, rules and `min_elements`; a choice, bounds, learned codecs and all that is about the
 *           output are not for this: TSR_E_USAGE.  NULL for tsr_pack_defaults()
 * @ret:     out: to be freed with tsr_saving_free()
 *
 * Return: TSR_OK, or what tsr_checkpoint_open() and tsr_names_assign() return.
 */
TSR_API enum tsr_status tsr_saving_plan(const struct tsr_job_state *state,
					const struct tsr_pack_options *options,
					struct tsr_saving **ret, struct tsr_err *err);
TSR_API void tsr_saving_free(struct tsr_saving *s);

/* What becomes of a tensor of the plan. */
struct tsr_saving_tensor {
	const char *name; /* borrowed from the plan */
	uint64_t number; /* of the job's tensor; none if it has no elements */
	uint64_t numel;
	size_t variance; /* that it is stored as ratios to: its index in the plan; SIZE_MAX: none */
	uint64_t plane[TSR_PLANES_MAX]; /* bytes of each plane, or of the elements as they are */
	uint64_t room; /* bytes of all of them, each from a multiple of 16 on */
	uint64_t
		coded_bound; /* the most bytes of its coded planes; 0: they are not coded on a GPU */
	unsigned nplanes;
	bool encoded; /* by a codec; false: it stays as it is */
};

TSR_API size_t tsr_saving_ntensors(const struct tsr_saving *s);

/* All of them, into room for tsr_saving_ntensors(). */
TSR_API void tsr_saving_tensors(const struct tsr_saving *s, struct tsr_saving_tensor *ret);

/* A tensor of the plan in host memory. */
struct tsr_saved {
	const void
		*data; /* elements, row-major, in their dtype; NULL: the planes are made already */
	/*
	 * Room for the bytes of each plane; of a tensor without a codec for its elements, or plane[0] NULL:
	 * they are written from @data, which then stays until that is done
	 */
	void *plane[TSR_PLANES_MAX];
	uint64_t coded[TSR_PLANES_MAX]; /* bytes of planes from tsr_saving_code_on(); 0: plain */
};

/*
 * Let the planes of @n tensors in @saved be one behind the other from @base on, a multiple of 16, in the room
 * of each.  Before tsr_saving_settle(): what it keeps raw takes another room.
 */
TSR_API void tsr_saving_place(const struct tsr_saving *s, struct tsr_saved *saved,
			      const size_t *which, size_t n, void *base);

/*
 * Encode all tensors with @data into their planes, or copy their elements there, on run->threads threads;
 * NULL: on this one.  @found: one per tensor of the plan, zeroed before.
 */
TSR_API enum tsr_status tsr_saving_encode(const struct tsr_saving *s, const struct tsr_saved *saved,
					  struct tsr_device_found *found, const struct tsr_run *run,
					  struct tsr_err *err);

/**
 * tsr_saving_encode_on() - Append the encoding of tensors to a stream of a GPU
 * @saved:   as for tsr_saving_encode(), but addresses are in device memory, and elements FP32 whatever the
 *           tensor's dtype; also of the variance that a momentum is relative to
 * @which:   @n numbers of tensors, each with a codec
 * @stream:  as for tersor/device.h
 * @found:   one per tensor of the plan, in device memory: added to
 * @scratch: device memory for the elements of the largest of them that is relative; may be NULL without one
 *
 * Waits where a codec is used on the GPU for the first time, and only then.
 */
TSR_API enum tsr_status tsr_saving_encode_on(const struct tsr_saving *s,
					     const struct tsr_saved *saved, const size_t *which,
					     size_t n, struct tsr_gpu *gpu, void *stream,
					     struct tsr_device_found *found, float *scratch,
					     struct tsr_err *err);

/* As tsr_device_coding_scratch(), to code the planes of @n tensors together. */
TSR_API uint64_t tsr_saving_coding_scratch(const struct tsr_saving *s, const size_t *which,
					   size_t n, const struct tsr_gpu *gpu);

/**
 * tsr_saving_code_on() - Append the entropy coding of planes to a stream of a GPU
 * @saved: planes in device memory, as tsr_saving_encode_on() has them
 * @which: @n numbers of tensors, each with a bound
 * @scratch, @coded, @ends: as for tsr_device_code(), of the planes of these tensors one after the other
 *
 * Where @coded is copied to is what tsr_saving_write() takes, with the sizes that @ends tell: it fills in the
 * hashes, and writes them as they are, unless the file is a delta.
 */
TSR_API enum tsr_status tsr_saving_code_on(const struct tsr_saving *s,
					   const struct tsr_saved *saved, const size_t *which,
					   size_t n, struct tsr_gpu *gpu, void *stream,
					   void *scratch, void *coded, uint64_t *ends,
					   struct tsr_err *err);

/* A tensor that its codec cannot hold. */
struct tsr_saving_raw {
	size_t tensor; /* its index in the plan */
	char why[80]; /* such as "3 non-finite values" */
};

/**
 * tsr_saving_settle() - Keep tensors raw if their codecs cannot hold what they have
 * @found: one per tensor of the plan: what encoding all of it found
 * @which: @n tensors
 * @ret:   out: those whose elements must be written instead of planes; room for @n
 *
 * The reasons are those of enum tsr_raw_reason: infinite or NaN elements, negative variances, and so on.
 * Return: how many are in @ret.
 */
TSR_API size_t tsr_saving_settle(struct tsr_saving *s, const struct tsr_device_found *found,
				 const size_t *which, size_t n, struct tsr_saving_raw *ret);

/**
 * tsr_saving_write() - Write the packed file
 * @saved: per tensor; planes, or the elements of those without a codec, are borrowed.  One that has elements
 *         and neither @data nor @plane[0] is left out: another process writes it
 * @options: as for tsr_recode(); NULL for tsr_recode_defaults()
 * @ret:   out: to be freed with tsr_unpacking_free(), and has the plan's checkpoint from then on; set on
 *         TSR_OK and TSR_E_DURABILITY
 *
 * Takes the plan: it can only be freed afterwards.  The file is written beside @out and renamed when it is
 * complete: what was there stays until then.
 *
 * Return: TSR_OK, TSR_E_USAGE for a second call, or what tsr_recode() returns.
 */
TSR_API enum tsr_status tsr_saving_write(struct tsr_saving *s, const struct tsr_saved *saved,
					 const char *out, const struct tsr_recode_options *options,
					 const struct tsr_run *run, struct tsr_unpacking **ret,
					 struct tsr_err *err);

/* The XXH3-64 of bytes with seed 0, by which packed files and directories name what they have. */
TSR_API uint64_t tsr_xxh3(const void *bytes, size_t nbytes);

#endif
