/* SPDX-License-Identifier: Apache-2.0 */
/* Comparing two directories file by file, either of which may be packed. */
#include "base/fail.h"
#include "base/option_size.h"
#include "ckpt/checkpoint_model.h"
#include "compare/comparison.h"
#include "directory/diff_directory.h"
#include "directory/shard_total.h"
#include "directory/stored.h"
#include "io/dir.h"
#include "parts/part.h"

struct diffing {
	struct tsr_traversal t; /* of entries that either side has */
	struct tsr_directory *a, *b; /* what was packed, or is there */
	const struct tsr_diff_options *options;
	bool bytes; /* tensors are compared elsewhere */
	size_t nunread; /* files that cannot be read */
	const struct tsr_directory_entry *first_unread;
};

/* --- The two sides ---------------------------------------------------------------------------- */

static enum tsr_status open_side(const char *path, bool follow, struct tsr_directory **ret,
				 struct tsr_err *err)
{
	TSR_SCOPED(tsr_nodes_free) struct tsr_nodes nodes = { 0 };

	if (!tsr_dir_is(path))
		return tsr_fail(err, TSR_E_USAGE, "%s: is not a directory", path);
	if (tsr_directory_is_packed(path))
		return tsr_directory_open(path, ret, err);
	return tsr_directory_list(path, follow, &nodes, ret, err);
}

/* What to open for an entry; .metadata stands for its checkpoint. */
static enum tsr_status file_of(struct diffing *d, const struct tsr_directory *side,
			       const struct tsr_directory_entry *e, const char **ret)
{
	const char *name = e->as == TSR_STORED_PACKED ? tsr_opened_file(e)->path : e->path;

	return tsr_traversal_path(&d->t, side->path, name, ret);
}

/* --- One file --------------------------------------------------------------------------------- */

/* @run: that of all files, or the joining process by itself.  @differ: the bytes do. */
static enum tsr_status compare_tensors(struct diffing *d, struct tsr_directory_entry *e,
				       const char *a, const char *b, bool differ,
				       const struct tsr_run *run)
{
	struct tsr_traversal *t = &d->t;
	TSR_OWNED(tsr_comparison_free) struct tsr_comparison *c = NULL;
	char text[TSR_BESIDES_TEXT];
	uint64_t n;

	TSR_TRY(tsr_traversal_settle(t, tsr_diff(&a, 1, &b, 1, d->options, run, &c, t->err)));
	if (!c)
		return TSR_OK; /* a part has done its pieces of it */
	if (t->watch.compared)
		t->watch.compared(t->watch.ctx, e, c);
	n = tsr_comparison_nexceeding(c);
	if (differ && !tsr_comparison_ntensors(c))
		TSR_TRY(tsr_traversal_fault(t, e, "bytes differ"));
	if (n)
		TSR_TRY(tsr_traversal_fault(t, e, "%" PRIu64 " of %zu tensors differ", n,
					    tsr_comparison_ntensors(c)));
	else if (c->besides.ndiffering)
		TSR_TRY(tsr_traversal_fault(t, e, "%s", tsr_besides_first(&c->besides, text)));
	return TSR_OK;
}

/* Whether the bytes are equal, and if not, whether the files can hold tensors. */
static enum tsr_status compare_bytes(struct diffing *d, const struct tsr_directory_entry *of_a,
				     const struct tsr_directory_entry *of_b, bool *same,
				     bool *tensors)
{
	const char *a = d->a->path, *b = d->b->path, *name = of_a->path;
	struct tsr_stored_file in_a = { 0 }, in_b = { 0 };

	TSR_TRY(tsr_copy_original(&d->t, a, of_a, NULL, &in_a));
	TSR_TRY(tsr_copy_original(&d->t, b, of_b, NULL, &in_b));
	*same = in_a.nbytes == in_b.nbytes && in_a.hash == in_b.hash;
	*tensors = false;
	if (*same || d->bytes)
		return TSR_OK;
	TSR_TRY(tsr_probe_below(&d->t, a, name, tensors));
	return *tensors ? tsr_probe_below(&d->t, b, name, tensors) : TSR_OK;
}

static enum tsr_status compare_files(struct diffing *d, struct tsr_directory_entry *e,
				     const struct tsr_directory_entry *a,
				     const struct tsr_directory_entry *b)
{
	const bool dcp = a->container == TSR_CONTAINER_DCP && b->container == TSR_CONTAINER_DCP;
	const bool packed = dcp || a->as == TSR_STORED_PACKED || b->as == TSR_STORED_PACKED;
	const struct tsr_run *run = tsr_traversal_run(&d->t);
	struct tsr_run alone;
	bool same = false, tensors = true;
	const char *file_a, *file_b;
	enum tsr_status status;

	/* The joining process compares all files that are packed on neither side. */
	if (!packed && tsr_part_is_one(tsr_traversal_parts(&d->t)))
		return TSR_OK;
	if (!packed && run) {
		alone = *run;
		alone.parts = NULL;
		run = &alone;
	}
	if (!packed)
		TSR_TRY(compare_bytes(d, a, b, &same, &tensors));
	if (same)
		return TSR_OK;
	if (!tensors)
		return tsr_traversal_fault(&d->t, e, "bytes differ");
	TSR_TRY(file_of(d, d->a, a, &file_a));
	TSR_TRY(file_of(d, d->b, b, &file_b));
	status = compare_tensors(d, e, file_a, file_b, !packed, run);
	/* What cannot be read as tensors can still differ in its bytes. */
	if (status == TSR_E_UNSUPPORTED && !packed)
		return tsr_traversal_fault(&d->t, e, "bytes differ");
	/* A damaged file says nothing about the others. */
	if (status != TSR_E_FORMAT && status != TSR_E_LIMIT)
		return status;
	if (!d->nunread++)
		d->first_unread = e;
	return tsr_traversal_fault(&d->t, e, "%s", d->t.err->msg);
}

static enum tsr_status compare_entry(struct tsr_traversal *t, struct tsr_directory_entry *e)
{
	struct diffing *d = (struct diffing *)t;
	const struct tsr_directory_entry *a = tsr_directory_find(d->a, e->path);
	const struct tsr_directory_entry *b = tsr_directory_find(d->b, e->path);

	if (!a || !b)
		return tsr_traversal_fault(t, e, "only in %s", a ? "A" : "B");
	if ((a->as == TSR_STORED_DIRECTORY) != (b->as == TSR_STORED_DIRECTORY))
		return tsr_traversal_fault(t, e, "a directory in %s only",
					   a->as == TSR_STORED_DIRECTORY ? "A" : "B");
	return a->as == TSR_STORED_DIRECTORY ? TSR_OK : compare_files(d, e, a, b);
}

/* --- What is in no checkpoint ------------------------------------------------------------------ */

/* Leave only entries at or below a path that was not read. */
static void keep_not_read(struct tsr_directory *d, const struct tsr_checkpoint *c)
{
	const size_t root = strlen(d->path);

	for (size_t i = 0; i < d->n; i++) {
		struct tsr_directory_entry *e = &d->entries[i];
		const struct tsr_not_read *l = c->not_read;

		for (; l; l = l->next) {
			const char *path = l->path + root;
			size_t n;

			path += strspn(path, "/");
			n = strlen(path);
			if (strncmp(e->path, path, n) == 0 && (!e->path[n] || e->path[n] == '/'))
				break;
		}
		if (!l)
			e->as = TSR_STORED_PART;
	}
}

/* --- The directories -------------------------------------------------------------------------- */

/* List what either side has, without parts of what is compared elsewhere. */
static enum tsr_status merge(struct diffing *d)
{
	const struct tsr_directory *a = d->a, *b = d->b;

	TSR_TRY(tsr_directory_new(a->path, a->n + b->n, &d->t.d, d->t.err));
	for (size_t i = 0, j = 0; i < a->n || j < b->n;) {
		struct tsr_directory_entry *e = &d->t.d->entries[d->t.d->n];
		const int order = i == a->n   ? 1
				  : j == b->n ? -1
					      : strcmp(a->entries[i].path, b->entries[j].path);
		const struct tsr_directory_entry *in_a = order <= 0 ? &a->entries[i++] : NULL;
		const struct tsr_directory_entry *in_b = order >= 0 ? &b->entries[j++] : NULL;
		const struct tsr_directory_entry *one = in_a ? in_a : in_b;

		if ((in_a && in_a->as == TSR_STORED_PART) || (in_b && in_b->as == TSR_STORED_PART))
			continue;
		*e = (struct tsr_directory_entry){ .as = one->as, .nbytes = one->nbytes };
		e->path = tsr_arena_string(d->t.d->arena, one->path);
		if (!e->path)
			return tsr_directory_nomem(d->t.d, d->t.err);
		d->t.d->n++;
	}
	return TSR_OK;
}

/* With @checkpoints, which were read of both, only files that are in neither, by their bytes. */
static enum tsr_status diff_sides(struct diffing *d, const char *a, const char *b,
				  const struct tsr_run *run,
				  const struct tsr_comparison *checkpoints)
{
	TSR_TRY(open_side(a, d->t.follow, &d->a, d->t.err));
	TSR_TRY(open_side(b, d->t.follow, &d->b, d->t.err));
	if (checkpoints) {
		keep_not_read(d->a, checkpoints->a);
		keep_not_read(d->b, checkpoints->b);
	} else {
		tsr_directory_find_parts(d->a);
		tsr_directory_find_parts(d->b);
	}
	TSR_TRY(merge(d));
	tsr_traversal_start(&d->t, run, false);
	return tsr_traversal_each(&d->t, compare_entry);
}

static enum tsr_status diff(const char *a, const char *b, const struct tsr_diff_options *options,
			    const struct tsr_directory_watch *watch, const struct tsr_run *run,
			    const struct tsr_comparison *checkpoints, struct tsr_directory **ret,
			    struct tsr_err *err)
{
	struct tsr_diff_options o = tsr_diff_defaults();
	struct diffing d = { .t.watch = tsr_directory_watch_defaults(),
			     .options = &o,
			     .bytes = checkpoints != NULL };
	struct tsr_open_options open, open_b;
	enum tsr_status status;

	TSR_TRY(tsr_options_take(&o, options, err));
	TSR_TRY(tsr_stored_open_options(&open, o.open, err));
	TSR_TRY(tsr_stored_open_options(&open_b, o.open_b ? o.open_b : o.open, err));
	o.open = &open;
	o.open_b = &open_b;
	TSR_TRY(tsr_options_take(&d.t.watch, watch, err));
	d.t.err = err ? err : &d.t.own;
	d.t.follow = open.follow;
	status = diff_sides(&d, a, b, run, checkpoints);
	tsr_directory_close(d.a);
	tsr_directory_close(d.b);
	status = tsr_traversal_end(&d.t, status, ret);
	if (status != TSR_OK || !d.nunread)
		return status;
	/* All files were looked at; the first that cannot be read is named. */
	return tsr_fail(d.t.err, TSR_E_FORMAT, "%s: %zu of %zu entries cannot be read; %s",
			d.t.d->path, d.nunread, d.t.d->n, d.first_unread->fault);
}

enum tsr_status tsr_diff_not_read(const struct tsr_comparison *c, const char *a, const char *b,
				  const struct tsr_diff_options *options,
				  struct tsr_directory **ret, struct tsr_err *err)
{
	return diff(a, b, options, NULL, NULL, c, ret, err);
}

enum tsr_status tsr_diff_directory(const char *a, const char *b,
				   const struct tsr_diff_options *options,
				   const struct tsr_directory_watch *watch,
				   const struct tsr_run *run, struct tsr_directory **ret,
				   struct tsr_err *err)
{
	return diff(a, b, options, watch, run, NULL, ret, err);
}
