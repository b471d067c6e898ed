/* SPDX-License-Identifier: Apache-2.0 */
/* Work on a GPU: its memory, streams and events, and the kernels of codecs, sweeps and steps. */
#ifndef TSR_GPU_WORK_H
#define TSR_GPU_WORK_H

#include "entropy/entropy.h"
#include "step/step_compare.h"
#include "step/step.h"
#include "tersor/codec.h"
#include "tersor/gpu.h"
#include "tersor/sweep.h"

struct tsr_gpu_stream; /* work on a GPU, done in the order in which it was submitted */
struct tsr_gpu_event; /* a point in a stream */

/*
 * @nbytes of device memory, aligned to 256 bytes, not initialised.  The CPU cannot read it:
 * only the functions below take its addresses.  Messages name @what if memory runs out.
 */
enum tsr_status tsr_gpu_alloc(struct tsr_gpu *gpu, uint64_t nbytes, const char *what,
			      void **memory_ret, struct tsr_err *err);
void tsr_gpu_free(struct tsr_gpu *gpu, void *memory);

/* Pinned host memory: copies need no staging, so they are faster and run beside the calling thread. */
enum tsr_status tsr_gpu_alloc_host(struct tsr_gpu *gpu, uint64_t nbytes, const char *what,
				   void **memory_ret, struct tsr_err *err);
void tsr_gpu_free_host(struct tsr_gpu *gpu, void *memory);

/* --- Streams --------------------------------------------------------------------------------- */

enum tsr_status tsr_gpu_stream_new(struct tsr_gpu *gpu, struct tsr_gpu_stream **stream_ret,
				   struct tsr_err *err);

/* Waits for the work in it.  NULL is allowed. */
void tsr_gpu_stream_free(struct tsr_gpu_stream *stream);

/* Wait until all work in the stream is done; a kernel that failed is known here at the latest. */
enum tsr_status tsr_gpu_sync(struct tsr_gpu_stream *stream, struct tsr_err *err);

/*
 * Append a copy to or from the device, or within it; or zeros.  Host
 * memory must stay as it is until the copy is done, which is at once unless it is from
 * tsr_gpu_alloc_host().
 */
enum tsr_status tsr_gpu_copy(struct tsr_gpu_stream *stream, void *to, const void *from,
			     uint64_t nbytes, struct tsr_err *err);
enum tsr_status tsr_gpu_zero(struct tsr_gpu_stream *stream, void *device, uint64_t nbytes,
			     struct tsr_err *err);

/* Memory of a stream: of each slot of a step, a matrix, a comparison; and of its sums, or of a coder. */
#define TSR_GPU_SCRATCH_MATRIX TSR_SLOTS
#define TSR_GPU_SCRATCH_COMPARE (TSR_SLOTS + 1)
#define TSR_GPU_SCRATCH_STAGING (TSR_SLOTS + 2)
#define TSR_GPU_SCRATCH (TSR_SLOTS + 3)

/*
 * Memory number @which of a stream, of at least @nbytes, for work in the stream only: later work may
 * overwrite it.  Waits for the stream where it has to grow.
 */
enum tsr_status tsr_gpu_scratch(struct tsr_gpu_stream *stream, unsigned which, uint64_t nbytes,
				void **memory_ret, struct tsr_err *err);

/* --- Events ---------------------------------------------------------------------------------- */

enum tsr_status tsr_gpu_event_new(struct tsr_gpu *gpu, struct tsr_gpu_event **event_ret,
				  struct tsr_err *err);
void tsr_gpu_event_free(struct tsr_gpu_event *event);

/* Set the event to this point of the stream. */
enum tsr_status tsr_gpu_record(struct tsr_gpu_stream *stream, struct tsr_gpu_event *event,
			       struct tsr_err *err);

/* Let later work in the stream wait for an event of this or another stream. */
enum tsr_status tsr_gpu_wait(struct tsr_gpu_stream *stream, const struct tsr_gpu_event *event,
			     struct tsr_err *err);

/* Wait until the work before the event is done. */
enum tsr_status tsr_gpu_reach(const struct tsr_gpu_event *event, struct tsr_err *err);

/* Device time between two events; waits for the later one. */
enum tsr_status tsr_gpu_seconds(const struct tsr_gpu_event *from, const struct tsr_gpu_event *to,
				double *seconds_ret, struct tsr_err *err);

/* --- Codecs ---------------------------------------------------------------------------------- */

/*
 * Whether there are kernels for a codec.  Every row of tsr_codecs() has them; of a low-rank one they code
 * what tsr_gpu_add_products() leaves, but not its factors.
 */
bool tsr_gpu_has_codec(const struct tsr_codec *codec);

/**
 * tsr_gpu_encode() - Append the encoding of elements to a stream
 * @coding: what to encode to
 * @x:      @n values in device memory
 * @plane:  one array in device memory per plane, sized by tsr_plane_nbytes()
 * @report: in device memory, aligned to 8 bytes, added to; NULL is allowed
 *
 * As codec->encode(), on arrays of any element alignment; it is fast where they are aligned to 16
 * bytes and groups have the default size.
 *
 * Return: TSR_OK, TSR_E_UNSUPPORTED if the codec has no kernel, or as above.
 */
enum tsr_status tsr_gpu_encode(struct tsr_gpu_stream *stream, const struct tsr_coding *coding,
			       const float *x, uint64_t n, void *const plane[],
			       struct tsr_encode_report *report, struct tsr_err *err);

/* The same for decoding: @plane and @x are in device memory. */
enum tsr_status tsr_gpu_decode(struct tsr_gpu_stream *stream, const struct tsr_coding *coding,
			       const void *const plane[], uint64_t n, float *x,
			       struct tsr_err *err);

/*
 * Add products of factors to @n elements of whole rows, of which the last may be short; or with a @sign of -1
 * subtract them.
 * @factors: of each stage the rows of left that elements are of, then all @columns of right, aligned to 16
 *           bytes; rows have TSR_RANK elements
 * @x:       the elements, as @factors in device memory
 * @report:  results that are not finite are added to its narrow_overflow; NULL is allowed
 */
enum tsr_status tsr_gpu_add_products(struct tsr_gpu_stream *stream, const float *factors,
				     unsigned nstages, uint32_t columns, float sign, uint64_t n,
				     float *x, struct tsr_encode_report *report,
				     struct tsr_err *err);

/* --- Sweeps ---------------------------------------------------------------------------------- */

#define TSR_GPU_SWEEP_BATCH 32768u /* bit patterns that are swept together */

/*
 * Append the sweep of @n bit patterns from @first on, both multiples of TSR_GPU_SWEEP_BATCH, to a
 * stream: see tsr_sweep_run().  @rows, one per exponent field, are in device memory and added to;
 * their `count` stays as it is.
 *
 * Return: TSR_OK, TSR_E_UNSUPPORTED for a codec with scales, or as above.
 */
enum tsr_status tsr_gpu_sweep(struct tsr_gpu_stream *stream, const struct tsr_codec *codec,
			      uint32_t first, uint64_t n, struct tsr_sweep_row *rows,
			      struct tsr_err *err);

/* --- Steps ----------------------------------------------------------------------------------- */

/*
 * What src/replay/gpu/batch_step.c makes steps of: all append to a stream, with arrays in device memory.
 *
 * The step of the elements that one kernel takes: none if there is no kernel or an array is not aligned,
 * else all whole groups.
 * @done_ret: how many
 */
enum tsr_status tsr_gpu_step_fused(struct tsr_gpu_stream *stream, const struct tsr_step *step,
				   const void *grad, uint64_t n, struct tsr_step_report *report,
				   uint64_t *done_ret, struct tsr_err *err);

/* The rule on FP32 arrays; NULL where it has no such state. */
enum tsr_status tsr_gpu_step_arrays(struct tsr_gpu_stream *stream, const struct tsr_step *step,
				    const void *grad, uint64_t n, float *const x[TSR_SLOTS],
				    struct tsr_step_report *report, struct tsr_err *err);

/*
 * The two halves of a step that stores its moments first, on arrays of whole blocks:
 * tsr_step_block_moments(), then tsr_step_weights() or of a matrix tsr_step_matrix().  @grad begins with
 * them; the device is current.
 */
enum tsr_status tsr_gpu_block_moments(struct tsr_gpu_stream *stream, const struct tsr_step *step,
				      const void *grad, uint64_t n, float *m, float *v,
				      struct tsr_step_report *report, struct tsr_err *err);
enum tsr_status tsr_gpu_step_weights(struct tsr_gpu_stream *stream, const struct tsr_step *step,
				     const void *grad, const float *m, const float *v, uint64_t n,
				     float *w, struct tsr_err *err);

/* @n momenta become ratios to their variances, or with @make false the reverse; @to may be @from. */
enum tsr_status tsr_gpu_turn_ratios(struct tsr_gpu_stream *stream, float eps, const float *from,
				    const float *variance, uint64_t n, bool make, float *to,
				    struct tsr_err *err);

/*
 * tsr_compare_add() of the arrays of @x, run after run of @run elements, to @sums in device memory, but for
 * `underflow`.
 */
enum tsr_status tsr_gpu_measure(struct tsr_gpu_stream *stream, const struct tsr_compare_run *x,
				uint64_t run, struct tsr_compare *sums, struct tsr_err *err);

/* --- Coded planes ---------------------------------------------------------------------------- */

/* What pieces that are coded together have in common: codes with contexts are those of a variance. */
struct tsr_gpu_coding {
	struct tsr_entropy_kind kind;
	bool contexts;
};

/* A piece of a plane, of whatever tensor; all its addresses are in device memory. */
struct tsr_gpu_piece {
	struct tsr_entropy_variance variance; /* of codes with contexts */
	void *plain; /* aligned to 16 bytes, codes with contexts to 4 */
	void *coded; /* aligned to 4 bytes; to encode, with room for tsr_entropy_bound() */
	uint32_t n; /* elements, 1 to TSR_ENTROPY_PIECE */
	uint32_t nbytes; /* coded: found to encode, given to decode */
};

/*
 * Append the coding of pieces, described in device memory, to a stream: the bytes of tsr_entropy_encode() or
 * tsr_entropy_encode_codes().
 * @staging: tsr_gpu_staging_nbytes() of device memory, up to 400 MiB; NULL: memory that the stream owns
 */
enum tsr_status tsr_gpu_encode_pieces(struct tsr_gpu_stream *stream, struct tsr_gpu_coding coding,
				      struct tsr_gpu_piece *pieces, unsigned npieces, void *staging,
				      struct tsr_err *err);
uint64_t tsr_gpu_staging_nbytes(const struct tsr_gpu *gpu, struct tsr_gpu_coding coding,
				unsigned npieces);

/*
 * Append their decoding; the coded bytes may be any.
 * @damaged: in device memory: becomes the number of the first piece that tsr_entropy_decode() or
 *           tsr_entropy_decode_codes() refuses, if that is lower than what is there; its elements are not
 *           to be used then
 */
enum tsr_status tsr_gpu_decode_pieces(struct tsr_gpu_stream *stream, struct tsr_gpu_coding coding,
				      const struct tsr_gpu_piece *pieces, unsigned npieces,
				      uint64_t *damaged, struct tsr_err *err);

/* A whole plane, and where its pieces are in a list of those of many planes. */
struct tsr_gpu_plane {
	struct tsr_gpu_coding coding;
	struct tsr_entropy_variance variance; /* of codes with contexts, from their first on */
	void *plain; /* its pieces aligned as those of struct tsr_gpu_piece */
	const void *coded; /* to decode: as a file has it, aligned to 8 bytes; NULL to encode */
	uint64_t coded_nbytes; /* at least its index */
	uint64_t n; /* entries */
	uint32_t piece, piece_scales; /* entries of each piece but the last, and their scales */
	uint32_t first, npieces; /* in the list */
	uint64_t rooms; /* to encode: the rooms of its coded pieces begin there, */
	uint32_t room; /* each of so many bytes, a multiple of 16 for tsr_entropy_bound() */
};

/* The pieces of a plane. */
struct tsr_gpu_span {
	uint32_t first, npieces;
};

/*
 * Append the making of a list of pieces to a stream; all addresses are in device memory but @planes, which
 * is borrowed by this call only.
 * @spans: out: @n of them
 * @rooms: where rooms are, which are counted from its beginning; to decode not used
 */
enum tsr_status tsr_gpu_list_pieces(struct tsr_gpu_stream *stream,
				    const struct tsr_gpu_plane *planes, size_t n, void *rooms,
				    struct tsr_gpu_piece *pieces, struct tsr_gpu_span *spans,
				    struct tsr_err *err);

/* Append tsr_entropy_log_scale() of @n scales. */
enum tsr_status tsr_gpu_shorten_scales(struct tsr_gpu_stream *stream, const uint32_t *scales,
				       uint64_t n, uint16_t *to, struct tsr_err *err);

/*
 * Append the copying of @npieces coded pieces to where they go: planes one behind the other, as
 * tsr_device_code() has them in @coded and @ends.
 */
enum tsr_status tsr_gpu_place_pieces(struct tsr_gpu_stream *stream,
				     const struct tsr_gpu_span *spans, size_t n,
				     struct tsr_gpu_piece *pieces, uint32_t npieces, void *coded,
				     uint64_t *ends, struct tsr_err *err);

/* Call @work with a stream of the caller, as tersor/device.h has it; no memory belongs to it. */
enum tsr_status tsr_gpu_with_stream(struct tsr_gpu *gpu, void *stream,
				    enum tsr_status (*work)(struct tsr_gpu_stream *stream,
							    void *ctx, struct tsr_err *err),
				    void *ctx, struct tsr_err *err);

#endif
