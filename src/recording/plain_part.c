/* SPDX-License-Identifier: Apache-2.0 */
/* The gradients of a packed file as if it were a plain one, for those that are joined where they lie. */
#include "recording/recording_data.h"

#include "base/fail.h"
#include "ckpt/build.h"
#include "ckpt/checkpoint_model.h"

#define BUFFER_NBYTES (UINT64_C(1) << 20)

/* Decode all tensors into @into, one after the other: when one of them is read first. */
static enum tsr_status write_plain(void *ctx, struct tsr_file *into, struct tsr_err *err)
{
	const struct tsr_checkpoint *c = ctx;
	TSR_OWNED(free) char *buffer = NULL;
	uint64_t at = 0;

	TSR_TRY(TSR_NEW(&buffer, BUFFER_NBYTES, err, c->path));
	for (size_t i = 0; i < c->ntensors; i++) {
		const struct tsr_array *a = &c->arrays[c->tensors[i].plane[0]];

		for (uint64_t done = 0, n; done < a->nbytes; done += n) {
			n = a->nbytes - done < BUFFER_NBYTES ? a->nbytes - done : BUFFER_NBYTES;
			TSR_TRY(tsr_array_read(c, a, done, (size_t)n, buffer, err));
			TSR_TRY(tsr_file_scratch_write(into, buffer, (size_t)n, at + done, err));
		}
		at += a->nbytes;
	}
	return TSR_OK;
}

static void close_part(void *ctx)
{
	tsr_checkpoint_close(ctx);
}

/* The same tensors and metadata, whose texts live as long as the file does. */
static enum tsr_status list(struct tsr_checkpoint *c, const struct tsr_checkpoint *part,
			    unsigned file, struct tsr_err *err)
{
	uint64_t at = 0;

	for (size_t i = 0; i < part->nmeta; i++)
		TSR_TRY(tsr_build_meta(c, part->meta[i].key, part->meta[i].value, err));
	for (size_t i = 0; i < part->ntensors; i++) {
		struct tsr_tensor t = part->tensors[i];
		const struct tsr_array *from = &part->arrays[t.plane[0]];
		const struct tsr_array a = { .name = t.name,
					     .dtype = t.dtype,
					     .rank = t.rank,
					     .shape = t.shape,
					     .file = file,
					     .offset = at };

		TSR_TRY(tsr_build_array(c, &a, &t.plane[0], err));
		TSR_TRY(tsr_build_tensor(c, &t, err));
		at += from->nbytes;
	}
	return tsr_build_index(c, err);
}

static uint64_t data_nbytes(const struct tsr_checkpoint *c)
{
	uint64_t n = 0;

	for (size_t i = 0; i < c->ntensors; i++)
		n += c->arrays[c->tensors[i].plane[0]].nbytes;
	return n;
}

static enum tsr_status build(struct tsr_checkpoint *c, struct tsr_checkpoint *part,
			     struct tsr_err *err)
{
	struct tsr_file *f = NULL;
	enum tsr_status status;
	unsigned file;

	c->arena = tsr_arena_new(TSR_BUILD_NBYTES_MAX);
	c->path = tsr_arena_string(c->arena, part->path);
	if (!c->path) {
		status = tsr_fail_nomem(err, part->path);
		tsr_checkpoint_close(part);
		return status;
	}
	c->container = part->container;
	/* From here on the file has the part. */
	TSR_TRY(tsr_file_scratch_later(c->path, data_nbytes(part), write_plain, part, close_part,
				       &f, err));
	TSR_TRY(tsr_build_file(c, f, &file, err));
	return list(c, part, file, err);
}

enum tsr_status tsr_recording_plain_part(struct tsr_checkpoint **part, struct tsr_err *err)
{
	TSR_OWNED(tsr_checkpoint_close) struct tsr_checkpoint *c = NULL;
	struct tsr_checkpoint *packed = *part;

	for (size_t i = 0; i < packed->ntensors; i++) {
		/* What loses something is refused where all parts are. */
		if (packed->tensors[i].coding.codec)
			return TSR_OK;
	}
	TSR_TRY(TSR_NEW(&c, 1, err, packed->path));
	*part = NULL;
	TSR_TRY(build(c, packed, err));
	return TSR_GIVE(part, c);
}
