/* SPDX-License-Identifier: Apache-2.0 */
/* A store: opening it, who may use it at once, and what its snapshots need. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/grow.h"
#include "io/dir.h"
#include "io/file.h"
#include "io/temporary.h"
#include "store/store_data.h"

#define MARK "tersor-store.json"
#define MARK_TEXT "{\"tersor_store\":1}\n"
#define ARENA_NBYTES ((size_t)16 << 30)

/* --- Tiers ------------------------------------------------------------------------------------ */

static const struct tsr_store_tier tiers[] = {
	{ "lossless", TSR_STORE_LOSSLESS, 0, 0, 0 },
	{ "exact", TSR_STORE_CODES, 0, 0, 0 },
	{ "1e-3", TSR_STORE_BOUNDS, 1e-3, 1e-3, 1e-3 },
	{ "1e-2", TSR_STORE_BOUNDS, 1.6e-2, 1.6e-2, 1.6e-2 },
	{ "trace", TSR_STORE_BOUNDS, 0.33, 0.25, 7e-2 },
};

const struct tsr_store_tier *tsr_store_tiers(size_t index)
{
	return index < sizeof(tiers) / sizeof(*tiers) ? &tiers[index] : NULL;
}

bool tsr_store_tier_find(const char *name, struct tsr_store_tier *ret)
{
	const struct tsr_store_tier *t;

	for (size_t i = 0; (t = tsr_store_tiers(i)); i++) {
		if (strcmp(name, t->name) == 0) {
			*ret = *t;
			return true;
		}
	}
	return false;
}

bool tsr_store_tier_is_finer(const struct tsr_store_tier *a, const struct tsr_store_tier *b)
{
	if (a->as != b->as)
		return a->as < b->as;
	return a->weight <= b->weight && a->update <= b->update && a->variance <= b->variance &&
	       (a->weight < b->weight || a->update < b->update || a->variance < b->variance);
}

/* --- What snapshots need ---------------------------------------------------------------------- */

/* Remember what is wrong. */
static enum tsr_status note(struct tsr_store *s, const char *text, struct tsr_err *err)
{
	TSR_TRY(TSR_ARENA_GROW(&s->notes, s->nnotes, s->arena, err, s->path));
	s->notes[s->nnotes] = tsr_arena_string(s->arena, text);
	return s->notes[s->nnotes++] ? TSR_OK : tsr_fail_nomem(err, s->path);
}

const char *tsr_store_note(const struct tsr_store *s, size_t index)
{
	return index < s->nnotes ? s->notes[index] : NULL;
}

enum tsr_status tsr_store_check_whole(const struct tsr_store *s, struct tsr_err *err)
{
	if (!s->lacks)
		return TSR_OK;
	return tsr_fail(
		err, TSR_E_FORMAT,
		"%s; what it needs is not known, so nothing is removed from the store: put a "
		"copy of this file there, or remove it to give the snapshot up",
		s->notes[0]);
}

#define NOTES_MAX 100u

static enum tsr_status note_missing(struct tsr_store *s, const struct tsr_object_id *id,
				    const struct tsr_snapshot *x, struct tsr_err *err)
{
	const struct tsr_object_text t = tsr_object_text(id);
	struct tsr_err wrong;

	if (s->nnotes >= NOTES_MAX)
		return TSR_OK;
	(void)tsr_fail(&wrong, TSR_E_FORMAT,
		       "%s/objects/%.2s/%s: is missing, and step %" PRIu64 " needs it", s->path,
		       t.text, t.text + 2, x->info.step);
	return note(s, wrong.msg, err);
}

static enum tsr_status need(struct tsr_store *s, const struct tsr_object_id *ids, uint64_t n,
			    size_t snapshot, struct tsr_err *err)
{
	for (uint64_t i = 0; i < n; i++) {
		struct tsr_known_object *o = tsr_objects_find(s, &ids[i]);

		if (!o) {
			TSR_TRY(note_missing(s, &ids[i], &s->snapshots[snapshot], err));
			continue;
		}
		if (!o->first)
			o->first = snapshot + 1;
		/* All that it needs, at first. */
		if (o->last != snapshot + 1)
			s->snapshots[snapshot].info.shared_nbytes += o->nbytes;
		o->last = snapshot + 1;
	}
	return TSR_OK;
}

static enum tsr_status need_all(struct tsr_store *s, size_t i, struct tsr_err *err)
{
	const struct tsr_snapshot *x = &s->snapshots[i];

	for (size_t k = 0; k < x->ntensors; k++)
		TSR_TRY(need(s, x->tensors[k].objects, tsr_entropy_pieces(x->tensors[k].n), i,
			     err));
	for (size_t k = 0; k < x->npaths; k++)
		TSR_TRY(need(s, x->paths[k].rest, tsr_entropy_pieces(x->paths[k].rest_nbytes), i,
			     err));
	return need(s, x->needs, x->nneeds, i, err);
}

static void count_alone(struct tsr_store *s)
{
	for (size_t i = 0; i < s->nobjects; i++) {
		const struct tsr_known_object *o = &s->objects[i];

		if (!o->first || o->first != o->last)
			continue;
		s->snapshots[o->first - 1].info.alone_nbytes += o->nbytes;
		s->snapshots[o->first - 1].info.shared_nbytes -= o->nbytes;
	}
}

static enum tsr_status load_snapshots(struct tsr_store *s, const struct tsr_dir *names,
				      struct tsr_err *err)
{
	TSR_TRY(TSR_ARENA_NEW(&s->snapshots, names->n, s->arena, tsr_fail_nomem(err, s->path)));
	for (size_t i = 0; i < names->n; i++) {
		struct tsr_err wrong;
		const enum tsr_status status = tsr_snapshot_read(
			s, names->names[i], &s->snapshots[s->nsnapshots], &wrong);

		if (status == TSR_E_NOMEM || status == TSR_E_IO)
			return tsr_fail(err, status, "%s", wrong.msg);
		s->lacks = s->lacks || status != TSR_OK;
		if (status == TSR_OK)
			s->nsnapshots++;
		else
			TSR_TRY(note(s, wrong.msg, err));
	}
	return TSR_OK;
}

enum tsr_status tsr_store_load(struct tsr_store *s, struct tsr_err *err)
{
	TSR_OWNED(free) char *path = NULL;
	TSR_SCOPED(tsr_dir_free) struct tsr_dir names = { 0 };

	tsr_arena_free(s->arena);
	s->arena = tsr_arena_new(ARENA_NBYTES);
	s->nsnapshots = s->nnotes = 0;
	s->notes = NULL;
	s->lacks = false;
	if (!s->arena)
		return tsr_fail_nomem(err, s->path);
	TSR_TRY(tsr_store_path(s, &path, err, TSR_SNAPSHOTS));
	TSR_TRY(tsr_dir_list(path, ".json", &names, err));
	TSR_TRY(load_snapshots(s, &names, err));
	TSR_TRY(tsr_objects_list(s, err));
	for (size_t i = 0; i < s->nsnapshots; i++)
		TSR_TRY(need_all(s, i, err));
	count_alone(s);
	return TSR_OK;
}

struct tsr_snapshot *tsr_store_find(const struct tsr_store *s, uint64_t step)
{
	for (size_t i = 0; i < s->nsnapshots; i++)
		if (s->snapshots[i].info.step == step)
			return &s->snapshots[i];
	return NULL;
}

const struct tsr_snapshot_info *tsr_store_snapshot(const struct tsr_store *s, size_t index)
{
	return index < s->nsnapshots ? &s->snapshots[index].info : NULL;
}

uint64_t tsr_store_nbytes(const struct tsr_store *s, uint64_t *unused_ret)
{
	uint64_t all = 0, unused = 0;

	for (size_t i = 0; i < s->nobjects; i++) {
		all += s->objects[i].nbytes;
		unused += s->objects[i].first ? 0 : s->objects[i].nbytes;
	}
	if (unused_ret)
		*unused_ret = unused;
	return all;
}

enum tsr_status tsr_store_sweep(struct tsr_store *s, uint64_t *freed_ret, struct tsr_err *err)
{
	*freed_ret = 0;
	TSR_TRY(tsr_store_check_whole(s, err));
	for (size_t i = 0; i < s->nobjects; i++) {
		if (s->objects[i].first)
			continue;
		TSR_TRY(tsr_object_remove(s, &s->objects[i].id, err));
		*freed_ret += s->objects[i].nbytes;
	}
	return TSR_OK;
}

/* --- Who uses it ------------------------------------------------------------------------------ */

/* Those that add hold it alone for a moment; a few seconds are more than that. */
#define LOCK_TRIES 500
#define LOCK_PAUSE_NS 10000000

static bool try_lock(const struct tsr_store *s, int how)
{
	const struct timespec pause = { .tv_nsec = LOCK_PAUSE_NS };

	for (int i = 0; i < LOCK_TRIES; i++) {
		if (flock(s->lock, how | LOCK_NB) == 0)
			return true;
		if (errno != EWOULDBLOCK && errno != EINTR)
			return false;
		nanosleep(&pause, NULL);
	}
	errno = EWOULDBLOCK;
	return false;
}

static enum tsr_status lock(struct tsr_store *s, int how, struct tsr_err *err)
{
	if (how == LOCK_SH ? try_lock(s, how) : flock(s->lock, how | LOCK_NB) == 0)
		return TSR_OK;
	if (errno == EWOULDBLOCK)
		return tsr_fail(err, TSR_E_IO,
				how == LOCK_EX ? "%s: another process uses the store; try again "
						 "when it is done"
					       : "%s: another process thins the store; try again "
						 "when it is done",
				s->path);
	return tsr_fail_errno(err, errno, "%s: cannot lock", s->path);
}

/* Remove files of a folder that processes which are gone left; how many there were. */
static unsigned clean(const struct tsr_store *s, const char *folder, bool (*is_left)(const char *))
{
	TSR_OWNED(free) char *path = NULL;
	const struct dirent *e;
	unsigned n = 0;
	DIR *d;

	if (tsr_store_path(s, &path, NULL, "%s", folder) != TSR_OK || !(d = opendir(path)))
		return 0;
	while ((e = readdir(d))) {
		if (!is_left(e->d_name))
			continue;
		n++;
		(void)unlinkat(dirfd(d), e->d_name, 0);
	}
	closedir(d);
	return n;
}

static bool is_any_file(const char *name)
{
	return *name != '.';
}

/* Alone in the store: after a process that was killed, its objects are removed, too. */
static enum tsr_status recover(struct tsr_store *s, struct tsr_err *err)
{
	uint64_t freed;

	(void)clean(s, TSR_SNAPSHOTS, tsr_temporary_is_name);
	if (!clean(s, "new", is_any_file) || s->lacks)
		return TSR_OK;
	TSR_TRY(tsr_store_sweep(s, &freed, err));
	return tsr_store_load(s, err);
}

static enum tsr_status take(struct tsr_store *s, enum tsr_store_mode mode, struct tsr_err *err)
{
	const bool alone = mode != TSR_STORE_READ && flock(s->lock, LOCK_EX | LOCK_NB) == 0;

	if (!alone)
		TSR_TRY(lock(s, mode == TSR_STORE_CHANGE ? LOCK_EX : LOCK_SH, err));
	TSR_TRY(tsr_store_load(s, err));
	if (alone)
		TSR_TRY(recover(s, err));
	if (mode == TSR_STORE_ADD)
		TSR_TRY(lock(s, LOCK_SH, err));
	return TSR_OK;
}

enum tsr_status tsr_store_begin(struct tsr_store *s, struct tsr_err *err)
{
	int fd;

	TSR_TRY(tsr_store_path(s, &s->marker, err, "new/%ld.adding", (long)getpid()));
	fd = open(s->marker, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
	if (fd < 0)
		return tsr_fail_errno(err, errno, "%s: cannot write to the store", s->path);
	close(fd);
	return TSR_OK;
}

void tsr_store_end(struct tsr_store *s, bool done)
{
	if (s->marker && done)
		(void)unlink(s->marker);
	free(s->marker);
	s->marker = NULL;
}

/* --- Opening ---------------------------------------------------------------------------------- */

static enum tsr_status make_folder(struct tsr_store *s, const char *name, struct tsr_err *err)
{
	TSR_OWNED(free) char *path = NULL;

	TSR_TRY(tsr_store_path(s, &path, err, "%s", name));
	if (mkdir(path, 0777) != 0 && errno != EEXIST)
		return tsr_fail_errno(err, errno, "%s: cannot make", path);
	return TSR_OK;
}

static bool is_empty(const char *path)
{
	TSR_SCOPED(tsr_dir_free) struct tsr_dir names = { 0 };

	return tsr_dir_list(path, "", &names, NULL) == TSR_OK && !names.n;
}

/* The mark is written last: a directory without it and with other things is not taken. */
static enum tsr_status make_store(struct tsr_store *s, const char *mark, struct tsr_err *err)
{
	static const char *const folders[] = { "objects", "new", TSR_SNAPSHOTS };

	if (mkdir(s->path, 0777) != 0 && errno != EEXIST)
		return tsr_fail_errno(err, errno, "%s: cannot make the store", s->path);
	for (unsigned i = 0; i < 3; i++)
		TSR_TRY(make_folder(s, folders[i], err));
	return tsr_outfile_write_whole(mark, true, MARK_TEXT, sizeof(MARK_TEXT) - 1, err);
}

static enum tsr_status check_mark(const char *path, struct tsr_err *err)
{
	TSR_OWNED(tsr_file_close) struct tsr_file *f = NULL;
	char text[sizeof(MARK_TEXT)] = { 0 };

	TSR_TRY(tsr_file_open(path, &f, err));
	if (tsr_file_size(f) != sizeof(MARK_TEXT) - 1)
		return tsr_fail(err, TSR_E_FORMAT, "%s: is not that of a store", path);
	TSR_TRY(tsr_file_read(f, text, sizeof(MARK_TEXT) - 1, 0, err));
	if (strcmp(text, MARK_TEXT) != 0)
		return tsr_fail(err, TSR_E_FORMAT,
				"%s: is not that of a store, or of a later version of it", path);
	return TSR_OK;
}

static enum tsr_status find_store(struct tsr_store *s, enum tsr_store_mode mode, const char *mark,
				  struct tsr_err *err)
{
	const bool there = tsr_dir_has(mark);

	if (!there && mode == TSR_STORE_ADD && (!tsr_dir_has(s->path) || is_empty(s->path)))
		return make_store(s, mark, err);
	if (!there)
		return tsr_fail(err, TSR_E_FORMAT,
				"%s: is no store: found no file " MARK
				" in it; adding to an absent or empty directory makes one",
				s->path);
	return check_mark(mark, err);
}

static enum tsr_status open_store(struct tsr_store *s, enum tsr_store_mode mode,
				  struct tsr_err *err)
{
	TSR_OWNED(free) char *mark = NULL;

	TSR_TRY(tsr_store_path(s, &mark, err, MARK));
	TSR_TRY(find_store(s, mode, mark, err));
	s->lock = open(mark, O_RDONLY | O_CLOEXEC);
	if (s->lock < 0)
		return tsr_fail_errno(err, errno, "%s: cannot open", mark);
	return take(s, mode, err);
}

enum tsr_status tsr_store_open(const char *path, enum tsr_store_mode mode, struct tsr_store **ret,
			       struct tsr_err *err)
{
	TSR_OWNED(tsr_store_close) struct tsr_store *s = NULL;

	TSR_TRY(TSR_NEW(&s, 1, err, path));
	s->lock = -1;
	s->path = strdup(path);
	if (!s->path)
		return tsr_fail_nomem(err, path);
	TSR_TRY(open_store(s, mode, err));
	return TSR_GIVE(ret, s);
}

void tsr_store_close(struct tsr_store *s)
{
	if (!s)
		return;
	tsr_store_end(s, false);
	if (s->lock >= 0)
		close(s->lock);
	tsr_arena_free(s->arena);
	free(s->objects);
	free(s->path);
	free(s);
}
