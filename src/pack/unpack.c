/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/file.h"
#include "ckpt/packed.h"
#include "pack/walk.h"
#include "tersor/pack.h"

struct unpacking {
	const struct tsr_checkpoint *c;
	struct tsr_st_entry *entries; /* one per tensor, in the source's order */
	struct tsr_outfile *out;
	uint64_t header_nbytes;
};

static enum tsr_status write_piece(void *ctx, void *extra, const struct tsr_restored *r,
				   struct tsr_err *err)
{
	struct unpacking *u = ctx;
	const uint64_t at = u->header_nbytes + u->entries[r->piece.tensor].offset + r->offset;

	(void)extra;
	return tsr_outfile_write(u->out, r->data, r->nbytes, at, err);
}

/* The source's metadata, and how many lossy generations these values have behind them. */
static enum tsr_status compose_header(struct unpacking *u, const char *path,
				      struct tsr_text *header, struct tsr_err *err)
{
	static char key[] = TSR_GENERATION_KEY;
	const struct tsr_checkpoint *c = u->c;
	struct tsr_meta *meta = calloc(c->nmeta + 1, sizeof(*meta));
	char generation[16];
	size_t n = 0;

	if (!meta)
		return tsr_fail_nomem(err, path);
	snprintf(generation, sizeof(generation), "%u", c->generation);
	while (n < c->nmeta && strcmp(c->meta[n].key, key) < 0) {
		meta[n] = c->meta[n];
		n++;
	}
	if (c->generation)
		meta[n++] = (struct tsr_meta){ key, generation };
	for (size_t i = n - (c->generation != 0); i < c->nmeta; i++)
		meta[n++] = c->meta[i];
	tsr_st_compose(u->entries, c->ntensors, meta, n, header);
	free(meta);
	if (header->failed)
		return tsr_fail_nomem(err, path);
	return tsr_st_frame(header, header->nbytes, path, err);
}

static enum tsr_status unpack_to(struct unpacking *u, const char *path, bool force, bool dry_run,
				 const struct tsr_run *run, uint64_t *nbytes_ret,
				 struct tsr_err *err)
{
	const struct tsr_walk walk = { .c = u->c, .finish = write_piece, .ctx = u };
	struct tsr_text header = { 0 };
	enum tsr_status status;

	for (size_t i = 0; i < u->c->ntensors; i++) {
		const struct tsr_tensor *t = &u->c->tensors[i];

		u->entries[i] = (struct tsr_st_entry){ .name = t->name,
						       .dtype = t->dtype,
						       .rank = t->rank,
						       .shape = t->shape,
						       .nbytes = tsr_tensor_nbytes(t) };
	}
	*nbytes_ret = tsr_st_layout(u->entries, u->c->ntensors);
	status = compose_header(u, path, &header, err);
	if (status == TSR_OK) {
		u->header_nbytes = header.nbytes;
		*nbytes_ret += header.nbytes;
	}
	if (status == TSR_OK && dry_run)
		status = tsr_outfile_check_target(path, force, err);
	else if (status == TSR_OK)
		status = tsr_outfile_create(path, force, *nbytes_ret, &u->out, err);
	if (status == TSR_OK && !dry_run)
		status = tsr_outfile_write(u->out, header.bytes, header.nbytes, 0, err);
	if (status == TSR_OK && !dry_run)
		status = tsr_walk_run(&walk, run, err);
	tsr_text_free(&header);
	return status;
}

enum tsr_status tsr_unpack(const char *path, const char *out, bool force, bool dry_run,
			   const struct tsr_run *run, struct tsr_unpacking **ret,
			   struct tsr_err *err)
{
	struct tsr_unpacking *result = calloc(1, sizeof(*result));
	struct unpacking u = { 0 };
	enum tsr_status status;

	if (!result)
		return tsr_fail_nomem(err, path);
	status = tsr_checkpoint_open(&path, 1, &result->source, err);
	u.c = result->source;
	if (status == TSR_OK && !u.c->packed)
		status = tsr_fail(err, TSR_E_UNSUPPORTED, "%s: is not a packed file", path);
	if (status == TSR_OK)
		status = tsr_file_check_not(u.c->files[0], out, err);
	if (status == TSR_OK) {
		u.entries = calloc(u.c->ntensors + 1, sizeof(*u.entries));
		status = u.entries ? unpack_to(&u, out, force, dry_run, run, &result->nbytes, err)
				   : tsr_fail_nomem(err, path);
	}
	if (status == TSR_OK && u.out) {
		status = tsr_outfile_publish(u.out, err);
		u.out = NULL;
	}
	tsr_outfile_discard(u.out);
	free(u.entries);
	if (status != TSR_OK && status != TSR_E_DURABILITY) {
		tsr_unpacking_free(result);
		return status;
	}
	*ret = result;
	return status;
}

void tsr_unpacking_free(struct tsr_unpacking *u)
{
	if (!u)
		return;
	tsr_checkpoint_close(u->source);
	free(u);
}
