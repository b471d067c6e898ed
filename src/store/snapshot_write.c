/* SPDX-License-Identifier: Apache-2.0 */
/* Writing the file of a snapshot (docs/internals/format.md, section 19.3). */
#include "base/fail.h"
#include "entropy/entropy.h"
#include "io/file.h"
#include "store/store_data.h"
#include "text/json.h"

static void put_ids(struct tsr_text *t, const char *key, const struct tsr_object_id *ids,
		    uint64_t n)
{
	tsr_json_open_string(t, key);
	for (uint64_t i = 0; i < n; i++)
		tsr_json_put_piece(t, tsr_object_text(&ids[i]).text);
	tsr_json_close_string(t);
}

static void put_path(struct tsr_text *t, const struct tsr_stored_path *p)
{
	tsr_json_open(t, NULL, '{');
	tsr_json_put_string(t, "path", p->path);
	tsr_json_put_bool(t, "directory", p->is_directory);
	tsr_json_put_u64(t, "mode", p->mode);
	tsr_json_put_u64(t, "nbytes", p->nbytes);
	put_ids(t, "rest", p->rest, tsr_entropy_pieces(p->rest_nbytes));
	tsr_json_open(t, "crcs", '[');
	for (size_t i = 0; i < p->ncrcs; i++) {
		tsr_json_put_u64(t, NULL, p->crcs[i].at);
		tsr_json_put_u64(t, NULL, p->crcs[i].offset);
		tsr_json_put_u64(t, NULL, p->crcs[i].nbytes);
	}
	tsr_json_close(t, ']');
	tsr_json_close(t, '}');
}

static void put_tensor(struct tsr_text *t, const struct tsr_stored_tensor *x)
{
	tsr_json_open(t, NULL, '{');
	tsr_json_open(t, "of", '[');
	for (unsigned i = 0; i < x->slots; i++) {
		tsr_json_open(t, NULL, '{');
		tsr_json_put_string(t, "name", x->name[i]);
		tsr_json_put_string(t, "kind", tsr_kind_name(x->kind[i]));
		tsr_json_put_u64(t, "file", x->file[i]);
		tsr_json_put_u64(t, "offset", x->offset[i]);
		tsr_json_close(t, '}');
	}
	tsr_json_close(t, ']');
	tsr_json_put_u64(t, "chunk", x->chunk);
	tsr_json_put_string(t, "dtype", tsr_dtype_name(x->dtype));
	tsr_json_put_u64(t, "n", x->n);
	tsr_json_put_u64(t, "columns", x->columns);
	tsr_json_put_u64(t, "phase", x->phase);
	put_ids(t, "objects", x->objects, tsr_entropy_pieces(x->n));
	tsr_json_close(t, '}');
}

static void put_info(struct tsr_text *t, const struct tsr_snapshot *s)
{
	static const char *const as[] = { "lossless", "codes", "bounds" };

	tsr_json_put_u64(t, "step", s->info.step);
	tsr_json_put_string(t, "name", s->info.name);
	tsr_json_open(t, "tier", '{');
	tsr_json_put_string(t, "name", s->info.tier.name);
	tsr_json_put_string(t, "as", as[s->info.tier.as]);
	tsr_json_put_double(t, "weight", s->info.tier.weight);
	tsr_json_put_double(t, "update", s->info.tier.update);
	tsr_json_put_double(t, "variance", s->info.tier.variance);
	tsr_json_close(t, '}');
	tsr_json_open(t, "errors", '{');
	tsr_json_put_double(t, "weight", s->info.errors.weight);
	tsr_json_put_double(t, "weight_ulps", s->info.errors.weight_ulps);
	tsr_json_put_double(t, "update", s->info.errors.update);
	tsr_json_put_double(t, "variance", s->info.errors.variance);
	tsr_json_close(t, '}');
	tsr_json_put_u64(t, "depth", s->info.depth);
	tsr_json_put_double(t, "eps", (double)s->eps);
	tsr_json_put_bool(t, "file", s->is_file);
}

static void compose(struct tsr_text *t, const struct tsr_snapshot *s)
{
	struct tsr_object_id check;

	tsr_json_open(t, NULL, '{');
	tsr_json_put_u64(t, "tersor_snapshot", 1);
	put_info(t, s);
	tsr_json_open(t, "files", '[');
	for (size_t i = 0; i < s->npaths; i++)
		put_path(t, &s->paths[i]);
	tsr_json_close(t, ']');
	tsr_json_open(t, "tensors", '[');
	for (size_t i = 0; i < s->ntensors; i++)
		put_tensor(t, &s->tensors[i]);
	tsr_json_close(t, ']');
	put_ids(t, "needs", s->needs, s->nneeds);
	if (t->failed)
		return;
	check = tsr_object_name(t->bytes, t->nbytes);
	tsr_json_put_string(t, "check", tsr_object_text(&check).text);
	tsr_json_close(t, '}');
	tsr_text_puts(t, "\n");
}

enum tsr_status tsr_snapshot_write(const struct tsr_store *s, const struct tsr_snapshot *snapshot,
				   bool force, struct tsr_err *err)
{
	TSR_OWNED(free) char *path = NULL;
	TSR_SCOPED(tsr_text_free) struct tsr_text t = { 0 };

	TSR_TRY(tsr_store_path(s, &path, err, TSR_SNAPSHOT_PATH, snapshot->info.step));
	compose(&t, snapshot);
	if (t.failed)
		return tsr_fail_nomem(err, s->path);
	return tsr_outfile_write_whole(path, force, t.bytes, t.nbytes, err);
}
