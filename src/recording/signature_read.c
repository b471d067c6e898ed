/* SPDX-License-Identifier: Apache-2.0 */
/* Reading files of signatures. */
#include "base/fail.h"
#include "base/little_endian.h"
#include "base/order.h"
#include "codec/math.h"
#include "io/file.h"
#include "io/hash.h"
#include "recording/recording_data.h"
#include "recording/signature_file.h"
#include "text/json.h"
#include "text/shape.h"

/* Limits on the head: its text, the JSON values in it. */
#define HEAD_NBYTES_MAX (UINT64_C(64) << 20)
#define HEAD_VALUES_MAX 2000000u

struct opened {
	struct tsr_signatures pub; /* first */
	struct tsr_recording_data *run; /* whose arena has everything */
	struct tsr_file *file;
	uint64_t data; /* where the first step begins */
	size_t step_nbytes;
	unsigned char *bytes; /* of a step */
	struct tsr_signed_step step;
};

/* --- The head ---------------------------------------------------------------------------------- */

static enum tsr_status wrong_tensor(const struct opened *o, size_t index, const char *member,
				    const char *expected, struct tsr_err *err)
{
	return tsr_fail(err, TSR_E_FORMAT, "%s: tensors[%zu]: %s: expected %s", o->pub.path, index,
			member, expected);
}

static enum tsr_status read_name(struct opened *o, size_t index, const struct tsr_json *v,
				 const char *member, const char **ret, struct tsr_err *err)
{
	const char *text = tsr_json_string(tsr_json_get(v, member));

	if (!text || !*text || strlen(text) > TSR_NAME_MAX)
		return wrong_tensor(o, index, member, "a name of 1 to 65535 bytes", err);
	*ret = tsr_arena_copy(o->run->arena, text, strlen(text));
	return *ret ? TSR_OK : tsr_recording_nomem(o->run, err);
}

static enum tsr_status read_shape(struct opened *o, size_t index, const struct tsr_json *v,
				  struct tsr_signed_tensor *t, struct tsr_err *err)
{
	const struct tsr_json *list = tsr_json_get(v, "shape");
	uint64_t shape[TSR_RANK_MAX], numel;
	bool valid = tsr_json_is_list(list);

	for (const struct tsr_json *d = valid ? tsr_json_first(list) : NULL; valid && d;
	     d = tsr_json_next(d)) {
		valid = t->rank < TSR_RANK_MAX && tsr_json_u64(d, &shape[t->rank]);
		t->rank += valid;
	}
	if (!valid || !tsr_shape_numel(t->rank, shape, &numel))
		return wrong_tensor(o, index, "shape", "a list of at most 64 dimensions", err);
	t->shape = tsr_arena_dup(o->run->arena, shape, t->rank * sizeof(*shape));
	return t->shape ? TSR_OK : tsr_recording_nomem(o->run, err);
}

static enum tsr_status read_tensor(struct opened *o, size_t index, const struct tsr_json *v,
				   struct tsr_signed_tensor *t, struct tsr_err *err)
{
	const char *dtype = tsr_json_string(tsr_json_get(v, "dtype"));
	const struct tsr_json *part = tsr_json_get(v, "part");

	TSR_TRY(read_name(o, index, v, "name", &t->name, err));
	TSR_TRY(read_name(o, index, v, "of", &t->of, err));
	t->dtype = dtype ? tsr_dtype_find(dtype) : TSR_DTYPE_COUNT;
	if (t->dtype == TSR_DTYPE_COUNT)
		return wrong_tensor(o, index, "dtype", "an element type such as F32", err);
	if (part && !tsr_json_bool(part, &t->part))
		return wrong_tensor(o, index, "part", "true or false", err);
	return read_shape(o, index, v, t, err);
}

TSR_COMPARE_BY(by_name, struct tsr_signed_tensor *, strcmp((*a)->name, (*b)->name),
	       strcmp((*a)->of, (*b)->of))

/* No tensor is listed twice. */
static enum tsr_status check_unique(const struct opened *o, struct tsr_err *err)
{
	TSR_OWNED(free) const struct tsr_signed_tensor **sorted = NULL;
	const size_t n = o->pub.ntensors;

	TSR_TRY(TSR_NEW(&sorted, n + 1, err, o->pub.path));
	for (size_t i = 0; i < n; i++)
		sorted[i] = &o->pub.tensors[i];
	qsort(sorted, n, sizeof(*sorted), by_name);
	for (size_t i = 1; i < n; i++) {
		if (by_name(&sorted[i - 1], &sorted[i]) == 0)
			return tsr_fail(err, TSR_E_FORMAT,
					"%s: tensors: found %.200s, %.60s twice, expected it once",
					o->pub.path, sorted[i]->name, sorted[i]->of);
	}
	return TSR_OK;
}

static enum tsr_status read_tensors(struct opened *o, const struct tsr_json *list,
				    struct tsr_err *err)
{
	struct tsr_signed_tensor *tensors;
	const size_t n = tsr_json_is_list(list) ? tsr_json_size(list) : 0;

	if (!n)
		return tsr_fail(err, TSR_E_FORMAT, "%s: tensors: expected a list of tensors",
				o->pub.path);
	TSR_TRY(TSR_ARENA_NEW(&tensors, n, o->run->arena, tsr_recording_nomem(o->run, err)));
	o->pub.tensors = tensors;
	o->pub.ntensors = n;
	list = tsr_json_first(list);
	for (size_t i = 0; i < n; i++, list = tsr_json_next(list))
		TSR_TRY(read_tensor(o, i, list, &tensors[i], err));
	return check_unique(o, err);
}

static enum tsr_status read_root(struct opened *o, const struct tsr_json *root, struct tsr_err *err)
{
	TSR_TRY(tsr_recording_read_run(o->run, o->pub.path, root, "head", "tersor-signatures",
				       err));
	if (!tsr_json_u64(tsr_json_get(root, "rank"), &o->pub.rank) ||
	    !tsr_json_u64(tsr_json_get(root, "ranks"), &o->pub.nranks) ||
	    o->pub.rank >= o->pub.nranks)
		return tsr_fail(err, TSR_E_FORMAT,
				"%s: rank, ranks: expected a rank and how many there are",
				o->pub.path);
	return read_tensors(o, tsr_json_get(root, "tensors"), err);
}

static enum tsr_status read_head(struct opened *o, struct tsr_err *err)
{
	const struct tsr_json_rules rules = {
		.file = o->pub.path, .part = "head", .max_depth = 16, .max_values = HEAD_VALUES_MAX
	};
	const uint64_t size = tsr_file_size(o->file);
	unsigned char start[TSR_SIGNATURES_HEAD_AT];
	TSR_OWNED(tsr_json_free) struct tsr_json *root = NULL;
	TSR_OWNED(free) char *text = NULL;
	uint64_t nbytes;

	if (size < sizeof(start))
		return tsr_fail(err, TSR_E_FORMAT, "%s: found %" PRIu64 " bytes, expected a head",
				o->pub.path, size);
	TSR_TRY(tsr_file_read(o->file, start, sizeof(start), 0, err));
	nbytes = tsr_get_le(start + 8, 8);
	if (memcmp(start, TSR_SIGNATURES_MAGIC, 8) != 0)
		return tsr_fail(err, TSR_E_FORMAT, "%s: is no file of signatures", o->pub.path);
	if (nbytes > HEAD_NBYTES_MAX)
		return tsr_fail(err, TSR_E_LIMIT,
				"%s: head of %" PRIu64 " bytes is over the limit of 64 MiB",
				o->pub.path, nbytes);
	if (nbytes > size - sizeof(start))
		return tsr_fail(err, TSR_E_FORMAT,
				"%s: ends in its head: writing it was interrupted", o->pub.path);
	TSR_TRY(TSR_NEW(&text, nbytes + 1, err, o->pub.path));
	TSR_TRY(tsr_file_read(o->file, text, nbytes, sizeof(start), err));
	if (tsr_hash(text, nbytes, 0) != tsr_get_le(start + 16, 8))
		return tsr_fail(err, TSR_E_FORMAT, "%s: the head is damaged", o->pub.path);
	TSR_TRY(tsr_json_parse(text, nbytes, &rules, &root, err));
	o->data = sizeof(start) + nbytes;
	return read_root(o, root, err);
}

/* --- Steps ------------------------------------------------------------------------------------- */

static double get_double(const unsigned char *bytes)
{
	const uint64_t bits = tsr_get_le(bytes, 8);
	double value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static void take_signature(const unsigned char *b, struct tsr_signature *s)
{
	memcpy(s->hash, b, sizeof(s->hash));
	s->max = tsr_f32_from_bits((uint32_t)tsr_get_le(b + 16, 4));
	s->rms = tsr_f32_from_bits((uint32_t)tsr_get_le(b + 20, 4));
	s->nonfinite = (uint32_t)tsr_get_le(b + 24, 4);
	s->zeros = (uint32_t)tsr_get_le(b + 28, 4);
}

/* False: its hash is another. */
static enum tsr_status load_step(struct opened *o, uint64_t index, bool *whole_ret,
				 struct tsr_err *err)
{
	const size_t n = o->step_nbytes - 8;

	TSR_TRY(tsr_file_read(o->file, o->bytes, o->step_nbytes, o->data + index * o->step_nbytes,
			      err));
	*whole_ret = tsr_hash(o->bytes, n, 0) == tsr_get_le(o->bytes + n, 8);
	return TSR_OK;
}

static enum tsr_status find_steps(struct opened *o, struct tsr_err *err)
{
	const uint64_t nbytes = tsr_file_size(o->file) - o->data;
	const size_t ngroups = o->run->pub.ngroups;
	bool whole = true;

	o->step_nbytes = tsr_signed_step_nbytes(ngroups, o->pub.ntensors);
	o->pub.nsteps = nbytes / o->step_nbytes;
	o->pub.torn_nbytes = nbytes % o->step_nbytes;
	o->bytes = tsr_arena_alloc(o->run->arena, o->step_nbytes);
	o->step.lr = tsr_arena_alloc(o->run->arena, ngroups * sizeof(*o->step.lr));
	o->step.tensors = tsr_arena_alloc(o->run->arena,
					  o->pub.ntensors * sizeof(*o->step.tensors));
	if (!o->bytes || !o->step.lr || !o->step.tensors)
		return tsr_recording_nomem(o->run, err);
	if (o->pub.nsteps)
		TSR_TRY(load_step(o, o->pub.nsteps - 1, &whole, err));
	/* A file system may have grown the file before its bytes were there. */
	if (!whole) {
		o->pub.nsteps--;
		o->pub.torn_nbytes += o->step_nbytes;
	}
	return TSR_OK;
}

enum tsr_status tsr_signatures_read(struct tsr_signatures *s, uint64_t index,
				    const struct tsr_signed_step **ret, struct tsr_err *err)
{
	struct opened *o = (struct opened *)s;
	const size_t ngroups = o->run->pub.ngroups;
	const unsigned char *at;
	bool whole;

	if (index >= s->nsteps)
		return tsr_fail(err, TSR_E_USAGE, "%s: has %" PRIu64 " steps", s->path, s->nsteps);
	TSR_TRY(load_step(o, index, &whole, err));
	o->step.step = tsr_get_le(o->bytes, 8);
	if (!whole)
		return tsr_fail(err, TSR_E_FORMAT, "%s: step number %" PRIu64 " is damaged",
				s->path, index);
	if (o->step.step > TSR_STEP_MAX)
		return tsr_fail(err, TSR_E_FORMAT,
				"%s: found step %" PRIu64 ", expected at most "
				"2^48-1",
				s->path, o->step.step);
	o->step.loss = get_double(o->bytes + 8);
	at = o->bytes + 16;
	for (size_t i = 0; i < ngroups; i++, at += 8)
		o->step.lr[i] = get_double(at);
	for (size_t i = 0; i < s->ntensors; i++, at += TSR_SIGNATURE_NBYTES)
		take_signature(at, &o->step.tensors[i]);
	*ret = &o->step;
	return TSR_OK;
}

/* --- Opening ----------------------------------------------------------------------------------- */

enum tsr_status tsr_signatures_open(const char *path, struct tsr_signatures **ret,
				    struct tsr_err *err)
{
	struct opened *o;
	enum tsr_status status;

	TSR_TRY(TSR_NEW(&o, 1, err, path));
	status = tsr_recording_new(path, NULL, &o->run, err);
	if (status == TSR_OK) {
		o->pub.run = &o->run->pub;
		o->pub.path = o->run->pub.path;
		status = tsr_file_open(path, &o->file, err);
	}
	TSR_THEN(status, read_head(o, err));
	TSR_THEN(status, find_steps(o, err));
	return TSR_MADE(status, ret, &o->pub, tsr_signatures_close);
}

void tsr_signatures_close(struct tsr_signatures *s)
{
	struct opened *o = (struct opened *)s;

	if (!o)
		return;
	tsr_file_close(o->file);
	if (o->run)
		tsr_recording_close(&o->run->pub);
	free(o);
}
