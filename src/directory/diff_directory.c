/* SPDX-License-Identifier: Apache-2.0 */
/* Comparing two directories file by file, either of which may be packed. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/option_size.h"
#include "ckpt/checkpoint_model.h"
#include "compare/comparison.h"
#include "container/containers.h"
#include "directory/by_file.h"
#include "directory/diff_directory.h"
#include "directory/shard_total.h"
#include "directory/stored.h"
#include "io/dir.h"
#include "parts/part.h"

/* One of the two directories: entries of what was packed, or of what is there. */
struct side {
	const char *path;
	struct tsr_directory *d;
};

struct diffing {
	struct side a, b;
	struct tsr_directory *result;
	const struct tsr_diff_options *options;
	struct tsr_directory_watch watch;
	struct tsr_by_file by_file;
	bool bytes; /* tensors are compared elsewhere */
	size_t nunread; /* files that cannot be read */
	const struct tsr_directory_entry *first_unread;
	struct tsr_err *err;
};

/* --- The two sides ---------------------------------------------------------------------------- */

/* A directory that is not packed, as if each of its files were a copy. */
static enum tsr_status list_plain(const char *path, const struct tsr_nodes *nodes,
				  struct tsr_directory **ret, struct tsr_err *err)
{
	TSR_TRY(tsr_directory_new(path, nodes->n, ret, err));
	for (size_t i = 0; i < nodes->n; i++) {
		struct tsr_directory *d = *ret;
		struct tsr_directory_entry *e = &d->entries[d->n++];

		e->path = tsr_directory_join(d, nodes->list[i].path, "");
		e->as = nodes->list[i].is_directory ? TSR_STORED_DIRECTORY : TSR_STORED_COPY;
		e->nbytes = nodes->list[i].nbytes;
		e->stored_nbytes = e->nbytes;
		if (!e->path)
			return tsr_directory_nomem(d, err);
	}
	return TSR_OK;
}

static enum tsr_status open_side(struct side *s, const char *path, bool follow, struct tsr_err *err)
{
	struct tsr_nodes nodes = { 0 };
	enum tsr_status status;

	s->path = path;
	if (!tsr_dir_is(path))
		return tsr_fail(err, TSR_E_USAGE, "%s: is not a directory", path);
	if (tsr_directory_is_packed(path))
		return tsr_directory_open(path, &s->d, err);
	TSR_TRY(tsr_nodes_list(path, follow, &nodes, err));
	status = list_plain(path, &nodes, &s->d, err);
	tsr_nodes_free(&nodes);
	return status;
}

/* What to open for an entry, to be freed. */
static char *file_of(const struct side *s, const struct tsr_directory_entry *e)
{
	if (e->as == TSR_STORED_PACKED)
		return tsr_path_join(s->path, tsr_opened_file(e)->path);
	return tsr_directory_source(s->path, e);
}

/* Find the checkpoints of torch.distributed.checkpoint: their *.distcp files are compared with them. */
static void find_parts(struct tsr_directory *d)
{
	for (size_t i = 0; i < d->n; i++) {
		struct tsr_directory_entry *e = &d->entries[i], *metadata;

		if (e->as == TSR_STORED_DIRECTORY || !tsr_dir_name_ends_with(e->path, ".distcp"))
			continue;
		metadata = tsr_directory_metadata_of(d, e);
		if (!metadata || metadata->as == TSR_STORED_DIRECTORY)
			continue;
		metadata->container = TSR_CONTAINER_DCP;
		e->as = TSR_STORED_PART;
	}
}

/* --- One file --------------------------------------------------------------------------------- */

/* @run: that of all files, or who joins parts by itself.  @differ: the bytes do. */
static enum tsr_status compare_tensors(struct diffing *d, struct tsr_directory_entry *e,
				       const char *a, const char *b, bool differ,
				       const struct tsr_run *run)
{
	struct tsr_comparison *c = NULL;
	char text[TSR_BESIDES_TEXT];
	enum tsr_status status = TSR_OK;
	uint64_t n;

	TSR_TRY(tsr_by_file_settle(&d->by_file,
				   tsr_diff(&a, 1, &b, 1, d->options, run, &c, d->err)));
	if (!c)
		return TSR_OK; /* a part has done its pieces of it */
	if (d->watch.compared)
		d->watch.compared(d->watch.ctx, e, c);
	n = tsr_comparison_nexceeding(c);
	if (differ && !tsr_comparison_ntensors(c))
		status = tsr_directory_fault(d->result, e, d->err, "bytes differ");
	if (n)
		status = tsr_directory_fault(d->result, e, d->err,
					     "%" PRIu64 " of %zu tensors differ", n,
					     tsr_comparison_ntensors(c));
	else if (c->besides.ndiffering)
		status = tsr_directory_fault(d->result, e, d->err, "%s",
					     tsr_besides_first(&c->besides, text));
	tsr_comparison_free(c);
	return status;
}

static enum tsr_status probe(const struct diffing *d, const struct side *s, const char *path,
			     bool *ret)
{
	const struct tsr_place_in at = { s->path, path, tsr_opens_links(d->options->open) };
	struct tsr_file *f = NULL;
	enum tsr_status status;

	TSR_TRY(tsr_open_below(&at, &f, d->err));
	status = tsr_container_probe(f, ret, d->err);
	tsr_file_close(f);
	return status;
}

/* Whether the bytes are equal, and if not, whether the files can hold tensors. */
static enum tsr_status compare_bytes(struct diffing *d, const struct tsr_directory_entry *of_a,
				     const struct tsr_directory_entry *of_b, bool *same,
				     bool *tensors)
{
	const char *path = of_a->path;
	const bool follow = tsr_opens_links(d->options->open);
	const struct tsr_place_in a = { d->a.path, path, follow }, b = { d->b.path, path, follow };
	struct tsr_stored_file in_a = { 0 }, in_b = { 0 };

	TSR_TRY(tsr_copy_original(&d->by_file, &a, of_a, NULL, &in_a, d->err));
	TSR_TRY(tsr_copy_original(&d->by_file, &b, of_b, NULL, &in_b, d->err));
	*same = in_a.nbytes == in_b.nbytes && in_a.hash == in_b.hash;
	*tensors = false;
	if (*same || d->bytes)
		return TSR_OK;
	TSR_TRY(probe(d, &d->a, path, tensors));
	return *tensors ? probe(d, &d->b, path, tensors) : TSR_OK;
}

static enum tsr_status compare_files(struct diffing *d, struct tsr_directory_entry *e,
				     const struct tsr_directory_entry *a,
				     const struct tsr_directory_entry *b)
{
	const bool dcp = a->container == TSR_CONTAINER_DCP && b->container == TSR_CONTAINER_DCP;
	const bool packed = dcp || a->as == TSR_STORED_PACKED || b->as == TSR_STORED_PACKED;
	const struct tsr_run *run = tsr_by_file_run(&d->by_file);
	struct tsr_run alone;
	bool same = false, tensors = true;
	char *file_a, *file_b;
	enum tsr_status status;

	/* Files that are packed on neither side are of who joins the parts, all of them. */
	if (!packed && tsr_part_is_one(tsr_by_file_parts(&d->by_file)))
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
		return tsr_directory_fault(d->result, e, d->err, "bytes differ");
	file_a = file_of(&d->a, a);
	file_b = file_of(&d->b, b);
	if (!file_a || !file_b)
		status = tsr_fail_nomem(d->err, e->path);
	else
		status = compare_tensors(d, e, file_a, file_b, !packed, run);
	free(file_a);
	free(file_b);
	/* What cannot be read as tensors can still differ in its bytes. */
	if (status == TSR_E_UNSUPPORTED && !packed)
		return tsr_directory_fault(d->result, e, d->err, "bytes differ");
	/* A damaged file says nothing about the others. */
	if (status != TSR_E_FORMAT && status != TSR_E_LIMIT)
		return status;
	if (!d->nunread++)
		d->first_unread = e;
	return tsr_directory_fault(d->result, e, d->err, "%s", d->err->msg);
}

static enum tsr_status compare_entry(struct diffing *d, const struct tsr_directory_entry *a,
				     const struct tsr_directory_entry *b)
{
	struct tsr_directory_entry *e = &d->result->entries[d->result->n];
	const struct tsr_directory_entry *one = a ? a : b;

	*e = (struct tsr_directory_entry){ .as = one->as, .nbytes = one->nbytes };
	e->path = tsr_directory_join(d->result, one->path, "");
	if (!e->path)
		return tsr_directory_nomem(d->result, d->err);
	d->result->n++;
	tsr_part_next_file(tsr_by_file_parts(&d->by_file));
	TSR_TRY(tsr_by_file_next(&d->by_file, one->nbytes, d->err));
	if (!a || !b)
		return tsr_directory_fault(d->result, e, d->err, "only in %s", a ? "A" : "B");
	if ((a->as == TSR_STORED_DIRECTORY) != (b->as == TSR_STORED_DIRECTORY))
		return tsr_directory_fault(d->result, e, d->err, "a directory in %s only",
					   a->as == TSR_STORED_DIRECTORY ? "A" : "B");
	return a->as == TSR_STORED_DIRECTORY ? TSR_OK : compare_files(d, e, a, b);
}

/* --- What is in no checkpoint ------------------------------------------------------------------ */

/* Leave only entries at or below a path that was not read. */
static void keep_not_read(const struct side *s, const struct tsr_checkpoint *c)
{
	const size_t root = strlen(s->path);

	for (size_t i = 0; i < s->d->n; i++) {
		struct tsr_directory_entry *e = &s->d->entries[i];
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

static enum tsr_status compare_all(struct diffing *d, const struct tsr_run *run)
{
	const struct tsr_directory *a = d->a.d, *b = d->b.d;
	uint64_t total = 0;
	size_t i = 0, j = 0;

	TSR_TRY(tsr_directory_new(d->a.path, a->n + b->n, &d->result, d->err));
	for (size_t k = 0; k < a->n; k++)
		total += a->entries[k].nbytes;
	tsr_by_file_start(&d->by_file, run, d->a.path, total);
	while (i < a->n || j < b->n) {
		const int order = i == a->n   ? 1
				  : j == b->n ? -1
					      : strcmp(a->entries[i].path, b->entries[j].path);

		const struct tsr_directory_entry *in_a = order <= 0 ? &a->entries[i] : NULL;
		const struct tsr_directory_entry *in_b = order >= 0 ? &b->entries[j] : NULL;

		if (!(in_a && in_a->as == TSR_STORED_PART) &&
		    !(in_b && in_b->as == TSR_STORED_PART))
			TSR_TRY(compare_entry(d, in_a, in_b));
		i += order <= 0;
		j += order >= 0;
	}
	tsr_part_end_files(tsr_by_file_parts(&d->by_file));
	return tsr_part_end(tsr_by_file_parts(&d->by_file), d->err);
}

/* All files were looked at; the first that cannot be read is named. */
static enum tsr_status summarize(const struct diffing *d)
{
	if (!d->nunread)
		return TSR_OK;
	return tsr_fail(d->err, TSR_E_FORMAT, "%s: %zu of %zu entries cannot be read; %s",
			d->a.path, d->nunread, d->result->n, d->first_unread->fault);
}

/* With @checkpoints, which were read of both, only files that are in neither, by their bytes. */
static enum tsr_status diff(const char *a, const char *b, const struct tsr_diff_options *options,
			    const struct tsr_directory_watch *watch, const struct tsr_run *run,
			    const struct tsr_comparison *checkpoints, struct tsr_directory **ret,
			    struct tsr_err *err)
{
	struct tsr_diff_options o = tsr_diff_defaults();
	struct diffing d = { .options = &o,
			     .watch = tsr_directory_watch_defaults(),
			     .bytes = checkpoints != NULL,
			     .err = err };
	enum tsr_status status;

	TSR_TRY(tsr_options_take(&o, options, err));
	TSR_TRY(tsr_options_take(&d.watch, watch, err));
	status = open_side(&d.a, a, tsr_opens_links(o.open), err);
	if (status == TSR_OK)
		status = open_side(&d.b, b, tsr_opens_links(o.open), err);
	if (status == TSR_OK && checkpoints) {
		keep_not_read(&d.a, checkpoints->a);
		keep_not_read(&d.b, checkpoints->b);
	} else if (status == TSR_OK) {
		find_parts(d.a.d);
		find_parts(d.b.d);
	}
	if (status == TSR_OK)
		status = compare_all(&d, run);
	tsr_directory_close(d.a.d);
	tsr_directory_close(d.b.d);
	if (status != TSR_OK) {
		tsr_directory_close(d.result);
		return status;
	}
	*ret = d.result;
	return summarize(&d);
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
