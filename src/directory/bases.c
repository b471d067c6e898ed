/* SPDX-License-Identifier: Apache-2.0 */
/* Deltas of directories: each packed file differs from that of the same name in another packed directory. */
#include "directory/traversal.h"

#include "base/fail.h"
#include "directory/stored.h"
#include "io/dir.h"
#include "io/atomic_dir.h"
#include "io/temporary.h"

/* The name of the directory is part of the names of bases: no slashes may follow it. */
static enum tsr_status trim(struct tsr_traversal *t)
{
	TSR_OWNED(free) char *path = tsr_path_trim(t->delta);

	t->delta = path ? tsr_arena_string(t->d->arena, path) : NULL;
	return t->delta ? TSR_OK : tsr_directory_nomem(t->d, t->err);
}

enum tsr_status tsr_bases_open(struct tsr_traversal *t)
{
	if (!t->delta)
		return TSR_OK;
	TSR_TRY(trim(t));
	if (!tsr_directory_is_packed(t->delta))
		return tsr_fail(
			t->err, TSR_E_USAGE,
			"%s: is not a packed directory, which a delta of one has for its base",
			t->delta);
	if (!tsr_dir_is_name(tsr_path_name(t->delta)))
		return tsr_fail(t->err, TSR_E_UNSUPPORTED,
				"%s: found a path that does not end in a name, expected one",
				t->delta);
	TSR_TRY(tsr_outdir_check_outside(t->output.path, t->delta, t->err));
	TSR_TRY(tsr_outdir_check_not_below(t->output.path, t->delta, t->err));
	return tsr_directory_open(t->delta, &t->bases, t->err);
}

/* --- Names that have the number of a step ------------------------------------------------------- */

static size_t ndigits(const char *s)
{
	return strspn(s, "0123456789");
}

/* Whether two names, which end at a slash or the end, differ in their numbers at most. */
static bool differ_in_numbers(const char *a, const char *b)
{
	for (;; a++, b++) {
		const size_t n = ndigits(a);

		if (!n != !ndigits(b))
			return false;
		a += n;
		b += ndigits(b);
		if (!*a || *a == '/' || *a != *b)
			return (!*a || *a == '/') && (!*b || *b == '/');
	}
}

/* Whether two paths differ at most in the numbers of one name, as global_step1/x and global_step2/x do. */
static bool differ_in_one_name(const char *a, const char *b)
{
	unsigned n = 0;

	for (;; a++, b++) {
		const size_t na = strcspn(a, "/"), nb = strcspn(b, "/");

		if (na != nb || memcmp(a, b, na) != 0) {
			if (n++ || !differ_in_numbers(a, b))
				return false;
		}
		a += na;
		b += nb;
		if (!*a || !*b)
			return *a == *b;
	}
}

/* The packed file of the same name or, if there is none, the only one with other numbers in one name. */
static const struct tsr_directory_entry *find(const struct tsr_directory *d, const char *path)
{
	const struct tsr_directory_entry *e = tsr_directory_find(d, path), *found = NULL;

	if (e)
		return e->as == TSR_STORED_PACKED ? e : NULL;
	for (size_t i = 0; i < d->n; i++) {
		e = &d->entries[i];
		if (e->as != TSR_STORED_PACKED || !differ_in_one_name(e->path, path))
			continue;
		if (found)
			return NULL;
		found = e;
	}
	return found;
}

enum tsr_status tsr_bases_find(struct tsr_traversal *t, const struct tsr_directory_entry *e,
			       const char **path, unsigned *levels)
{
	const struct tsr_directory_entry *old = t->bases ? find(t->bases, e->path) : NULL;
	const char *name;

	*path = NULL;
	*levels = 0;
	if (!old)
		return TSR_OK;
	name = tsr_opened_file(old)->path;
	*levels = (unsigned)tsr_dir_count_names(name);
	return tsr_traversal_path(t, t->delta, name, path);
}
