/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a directory: listing them, reading them, and accounting for those that were not read. */
#include "layouts/folder.h"

#include <ctype.h>

#include "base/fail.h"
#include "ckpt/checkpoint_model.h"
#include "container/containers.h"
#include "format/zip.h"
#include "text/text.h"

/* The longest file of one line. */
#define LINE_MAX_NBYTES 4096u

/* How deep directories are searched for tensors that are not read. */
#define SEARCH_DEPTH 8u

/* --- Listing ------------------------------------------------------------------------------------ */

enum tsr_status tsr_folder_enter(const struct tsr_folder *parent, const char *name,
				 struct tsr_folder *ret)
{
	struct tsr_err *err = parent->err;
	const char *path = tsr_arena_printf(parent->c->arena, "%s/%s", parent->path, name);

	*ret = *parent;
	ret->parent = parent;
	ret->names = (struct tsr_dir){ 0 };
	ret->taken = NULL;
	if (!path)
		return tsr_build_nomem(parent->c, err);
	ret->path = path;
	if (!tsr_dir_is_name(name) || !tsr_dir_is(path))
		return tsr_fail(err, TSR_E_FORMAT, "%s: found no directory %.255s in it",
				parent->path, name);
	if (!parent->options->follow && tsr_dir_is_link(path))
		return tsr_fail_hint(parent->err, TSR_E_UNSUPPORTED, TSR_HINT_FOLLOW_LINKS,
				     "%s: is a symbolic link, expected a directory", path);
	TSR_TRY(tsr_dir_list(path, "", &ret->names, err));
	return TSR_NEW(&ret->taken, ret->names.n + 1, err, path);
}

void tsr_folder_leave(struct tsr_folder *d)
{
	tsr_dir_free(&d->names);
	free(d->taken);
	d->taken = NULL;
}

enum tsr_status tsr_folder_within(struct tsr_folder *d, const char *name, tsr_folder_read_fn *read,
				  void *ctx)
{
	const size_t at = tsr_folder_find(d, name);
	TSR_SCOPED(tsr_folder_leave) struct tsr_folder child = { 0 };

	if (at != SIZE_MAX)
		d->taken[at] = true;
	TSR_TRY(tsr_folder_enter(d, name, &child));
	TSR_TRY(read(&child, ctx));
	return tsr_folder_account(&child);
}

bool tsr_folder_has_folder(const struct tsr_folder *d, const char *name)
{
	TSR_OWNED(free) char *path = tsr_path_join(d->path, name);

	return path && tsr_dir_is(path) && !tsr_dir_is_link(path);
}

size_t tsr_folder_find(const struct tsr_folder *d, const char *name)
{
	for (size_t i = 0; i < d->names.n; i++) {
		if (strcmp(d->names.names[i], name) == 0)
			return i;
	}
	return SIZE_MAX;
}

bool tsr_folder_has(const struct tsr_folder *d, const char *name)
{
	return tsr_folder_find(d, name) != SIZE_MAX;
}

/* Remember what is not read of it. */
static enum tsr_status note_not_read(struct tsr_folder *d, const char *name)
{
	struct tsr_not_read *n = tsr_arena_alloc(d->c->arena, sizeof(*n));
	const char *path = tsr_arena_printf(d->c->arena, "%s/%s", d->path, name);

	if (!n || !path)
		return tsr_build_nomem(d->c, d->err);
	*n = (struct tsr_not_read){ path, d->c->not_read };
	d->c->not_read = n;
	return TSR_OK;
}

enum tsr_status tsr_folder_skip_others(struct tsr_folder *d, const char *latest,
				       bool (*is_other)(const struct tsr_folder *d,
							const char *name))
{
	const char *other = NULL;
	size_t n = 0;

	for (size_t i = 0; i < d->names.n; i++) {
		if (d->taken[i] || !is_other(d, d->names.names[i]))
			continue;
		d->taken[i] = true;
		other = d->names.names[i];
		n++;
		TSR_TRY(note_not_read(d, other));
	}
	if (!n)
		return TSR_OK;
	return tsr_build_remark(
		d->c, d->err,
		"%.200s: read %.100s, the latest checkpoint in it; %.100s is another "
		"one (%zu in all)",
		d->path, latest, other, n);
}

bool tsr_folder_numbered(const char *name, const char *prefix, const char *suffix)
{
	const size_t n = strlen(prefix);
	const char *at = strncmp(name, prefix, n) == 0 ? name + n : "";
	const size_t digits = strspn(at, "0123456789");

	return digits && digits <= 18 && strcmp(at + digits, suffix) == 0;
}

/* --- Reading ------------------------------------------------------------------------------------ */

static enum tsr_status open_in(struct tsr_folder *d, const char *name, struct tsr_file **ret)
{
	const size_t i = tsr_folder_find(d, name);

	if (i != SIZE_MAX)
		d->taken[i] = true;
	return tsr_file_open_in(d->path, name, d->options->follow, ret, d->err);
}

enum tsr_status tsr_folder_line(struct tsr_folder *d, const char *name, const char **ret)
{
	TSR_OWNED(tsr_file_close) struct tsr_file *f = NULL;
	TSR_OWNED(free) char *text = NULL;
	size_t n;

	TSR_TRY(open_in(d, name, &f));
	TSR_TRY(tsr_file_load(f, LINE_MAX_NBYTES, "a file of one line", &text, d->err));
	n = strcspn(text, "\r\n");
	while (n && isspace((unsigned char)text[n - 1]))
		n--;
	*ret = tsr_arena_copy(d->c->arena, text, n);
	return *ret ? TSR_OK : tsr_build_nomem(d->c, d->err);
}

enum tsr_status tsr_folder_add(struct tsr_folder *d, const char *name)
{
	struct tsr_file *f = NULL;

	TSR_TRY(open_in(d, name, &f));
	return tsr_container_read(d->c, f, d->options, d->err);
}

enum tsr_status tsr_folder_torch(struct tsr_folder *d, const char *name, struct tsr_value **ret)
{
	const size_t ntrees = d->c->ntrees;

	TSR_TRY(tsr_folder_add(d, name));
	if (d->c->ntrees != ntrees + 1)
		return tsr_fail(d->err, TSR_E_FORMAT,
				"%s/%.255s: found another kind of file, expected one of torch.save",
				d->path, name);
	*ret = d->c->trees[--d->c->ntrees];
	return TSR_OK;
}

enum tsr_status tsr_folder_put(struct tsr_folder *d, const char *key, struct tsr_value *v)
{
	if (tsr_value_at(d->root, key))
		return tsr_fail(d->err, TSR_E_FORMAT, "%s: found two values for %.255s", d->path,
				key);
	return tsr_folder_set(d, d->root, key, v);
}

enum tsr_status tsr_folder_set(const struct tsr_folder *d, struct tsr_value *dict, const char *key,
			       struct tsr_value *v)
{
	return tsr_value_put_at(d->c->arena, dict, key, v) ? TSR_OK : tsr_build_nomem(d->c, d->err);
}

enum tsr_status tsr_folder_set_all(const struct tsr_folder *d, struct tsr_value *dict,
				   const struct tsr_value *mapping)
{
	return tsr_value_put_all(d->c->arena, dict, mapping) ? TSR_OK
							     : tsr_build_nomem(d->c, d->err);
}

/* --- States beside weights ---------------------------------------------------------------------- */

/* Names that are prefix, a number and suffix, or with a number of 0 prefix and suffix alone. */
static const struct {
	const char *prefix, *suffix;
	bool numbered;
} states[] = {
	{ "optimizer", ".pt", false },
	{ "optimizer", ".bin", false },
	{ "optimizer_", ".bin", true },
	{ "scheduler", ".pt", false },
	{ "scheduler", ".bin", false },
	{ "scheduler_", ".bin", true },
	{ "scaler", ".pt", false },
	{ "sampler", ".bin", false },
	{ "sampler_", ".bin", true },
	{ "rng_state", ".pth", false },
	{ "rng_state_", ".pth", true },
	{ "random_states_", ".pkl", true },
	{ "dl_state_dict", ".bin", false },
	{ "dl_state_dict_", ".bin", true },
	{ "custom_checkpoint_", ".pkl", true },
};

/* The suffix of the name of a state, or NULL. */
static const char *state_suffix(const char *name)
{
	for (size_t i = 0; i < sizeof(states) / sizeof(*states); i++) {
		const char *prefix = states[i].prefix, *suffix = states[i].suffix;
		const size_t n = strlen(prefix);

		if (states[i].numbered ? tsr_folder_numbered(name, prefix, suffix)
				       : strncmp(name, prefix, n) == 0 && !strcmp(name + n, suffix))
			return suffix;
	}
	return NULL;
}

bool tsr_folder_has_states(const struct tsr_folder *d)
{
	for (size_t i = 0; i < d->names.n; i++) {
		if (state_suffix(d->names.names[i]))
			return true;
	}
	return false;
}

enum tsr_status tsr_folder_states(struct tsr_folder *d)
{
	for (size_t i = 0; i < d->names.n; i++) {
		const char *name = d->names.names[i], *suffix = state_suffix(name);
		struct tsr_value *v = NULL;
		char *key;

		if (!suffix || d->taken[i])
			continue;
		TSR_TRY(tsr_folder_torch(d, name, &v));
		key = tsr_arena_copy(d->c->arena, name, strlen(name) - strlen(suffix));
		if (!key)
			return tsr_build_nomem(d->c, d->err);
		TSR_TRY(tsr_folder_put(d, key, v));
	}
	return TSR_OK;
}

/* --- Files that were not read ------------------------------------------------------------------- */

/* Endings of files that hold tensors, whether or not tersor reads them. */
static const char *const endings[] = {
	".safetensors", ".pt", ".pth",	".bin", ".ckpt",   ".npz", ".npy", ".distcp", ".gguf",
	".msgpack",	".h5", ".onnx", ".pkl", ".pickle", ".tar", ".tgz", ".gz",     ".zst",
};

/* Mark the files that were opened, whoever did it. */
static void mark_read(struct tsr_folder *d)
{
	const size_t n = strlen(d->path);

	for (unsigned i = 0; i < d->c->nfiles; i++) {
		const char *path = tsr_file_path(d->c->files[i]);
		size_t at;

		if (strncmp(path, d->path, n) != 0 || path[n] != '/')
			continue;
		at = tsr_folder_find(d, path + n + 1);
		if (at != SIZE_MAX)
			d->taken[at] = true;
	}
}

/* An archive of torch.save without a storage in it has plain values only: training_args.bin. */
static bool has_records(const struct tsr_file *f)
{
	TSR_OWNED(tsr_zip_free) struct tsr_zip *z = NULL;
	bool found = false;

	if (tsr_zip_read(f, 0, tsr_file_size(f), tsr_file_path(f), &z, NULL) != TSR_OK)
		return true;
	for (size_t i = 0; i < z->nmembers; i++)
		found = found || strstr(z->members[i].name, "/data/") ||
			tsr_dir_name_ends_with(z->members[i].name, ".npy");
	return found;
}

static bool may_hold_tensors(const struct tsr_folder *d, const char *name)
{
	TSR_OWNED(tsr_file_close) struct tsr_file *f = NULL;
	struct tsr_file_head head = { .n = 0 };
	bool named = false;

	for (size_t i = 0; i < sizeof(endings) / sizeof(*endings); i++)
		named = named || tsr_dir_name_ends_with(name, endings[i]);
	if (tsr_file_open_in(d->path, name, true, &f, NULL) != TSR_OK)
		return named;
	if (tsr_file_head_read(f, &head, NULL) != TSR_OK || tsr_safetensors_detect(&head) ||
	    tsr_npy_detect(&head))
		return true;
	if (head.n >= 4 && memcmp(head.bytes, "PK\3\4", 4) == 0)
		return has_records(f);
	return named && head.n > 0;
}

/*
 * The first file below @d that was not read and may hold tensors, or the first directory that is a link or
 * too deep to be searched: its path from @d on, or "".
 */
static enum tsr_status search(const struct tsr_folder *d, unsigned depth, struct tsr_text *found)
{
	const size_t nbytes = found->nbytes;

	for (size_t i = 0; i < d->names.n; i++) {
		const char *name = d->names.names[i];
		TSR_SCOPED(tsr_folder_leave) struct tsr_folder child = { 0 };
		TSR_OWNED(free) char *path = tsr_path_join(d->path, name);

		if (!path)
			return tsr_fail_nomem(d->err, d->path);
		if (tsr_dir_is(path) && !tsr_dir_is_link(path) && depth < SEARCH_DEPTH) {
			tsr_text_printf(found, "%s/", name);
			TSR_TRY(tsr_folder_enter(d, name, &child));
			TSR_TRY(search(&child, depth + 1, found));
		} else if (tsr_dir_is(path) || may_hold_tensors(d, name)) {
			tsr_text_puts(found, name);
			return TSR_OK;
		}
		if (found->nbytes && found->bytes[found->nbytes - 1] != '/')
			return TSR_OK;
		found->nbytes = nbytes;
	}
	return TSR_OK;
}

static enum tsr_status refuse(const struct tsr_folder *d, const char *name)
{
	return tsr_fail(d->err, TSR_E_UNSUPPORTED,
			"%s: found %.300s beside the files that were read, which may hold tensors "
			"and belongs to no layout that tersor knows; name the files that are meant",
			d->path, name);
}

/* One name that was not read: refuse it, or add it to the names that are left out. */
static enum tsr_status leave_out(const struct tsr_folder *d, const char *name, struct tsr_text *out)
{
	TSR_SCOPED(tsr_text_free) struct tsr_text found = { 0 };
	TSR_SCOPED(tsr_folder_leave) struct tsr_folder child = { 0 };
	TSR_OWNED(free) char *path = tsr_path_join(d->path, name);
	const bool is_directory = path && tsr_dir_is(path);

	if (!path)
		return tsr_fail_nomem(d->err, d->path);
	if (is_directory) {
		TSR_TRY(tsr_folder_enter(d, name, &child));
		tsr_text_printf(&found, "%s/", name);
		TSR_TRY(search(&child, 0, &found));
		if (found.nbytes > strlen(name) + 1)
			return refuse(d, found.bytes);
	} else if (may_hold_tensors(d, name)) {
		return refuse(d, name);
	}
	tsr_text_printf(out, "%s%s%s", out->nbytes ? ", " : "", name, is_directory ? "/" : "");
	return TSR_OK;
}

enum tsr_status tsr_folder_account(struct tsr_folder *d)
{
	TSR_SCOPED(tsr_text_free) struct tsr_text out = { 0 };
	size_t shown = 0, n = 0;

	mark_read(d);
	for (size_t i = 0; i < d->names.n; i++) {
		if (d->taken[i])
			continue;
		TSR_TRY(leave_out(d, d->names.names[i], &out));
		TSR_TRY(note_not_read(d, d->names.names[i]));
		n++;
		if (out.nbytes <= 300)
			shown = out.nbytes;
	}
	if (out.failed)
		return tsr_fail_nomem(d->err, d->path);
	if (n)
		TSR_TRY(tsr_build_note(d->c, d->err,
				       "%.100s: left out: %.*s%s: no tensors in it; a directory "
				       "as output keeps such files",
				       d->path, (int)shown, out.bytes,
				       shown < out.nbytes ? " and others" : ""));
	if (n && d->c->nnotes <= 64)
		d->c->not_read_notes |= UINT64_C(1) << (d->c->nnotes - 1);
	return TSR_OK;
}
