/* SPDX-License-Identifier: Apache-2.0 */
/* The safetensors container, read strictly and written deterministically. */
#include "format/safetensors.h"

#include "base/grow.h"
#include "base/little_endian.h"
#include "base/order.h"
#include "text/shape.h"

/* --- Reading -------------------------------------------------------------------------------- */

struct entry_members {
	const struct tsr_json *dtype;
	const struct tsr_json *shape;
	const struct tsr_json *offsets;
};

/* A header being read. */
struct reading {
	const char *path;
	uint64_t data_nbytes; /* bytes behind the header */
	struct tsr_st_contents *c;
	struct tsr_arena *arena;
	struct tsr_err *err;
};

#define FAIL(r, code, name, ...) tsr_fail_in((r)->err, code, (r)->path, "tensor", name, __VA_ARGS__)

static enum tsr_status find_members(struct reading *r, const struct tsr_json *entry,
				    struct entry_members *m)
{
	const char *name = tsr_json_key(entry);

	*m = (struct entry_members){ 0 };
	if (tsr_json_type(entry) != TSR_JSON_OBJECT)
		return FAIL(r, TSR_E_FORMAT, name,
			    "found no object, expected dtype, shape and data_offsets");
	for (const struct tsr_json *v = tsr_json_first(entry); v; v = tsr_json_next(v)) {
		const char *key = tsr_json_key(v);

		if (strcmp(key, "dtype") == 0)
			m->dtype = v;
		else if (strcmp(key, "shape") == 0)
			m->shape = v;
		else if (strcmp(key, "data_offsets") == 0)
			m->offsets = v;
		else
			return FAIL(
				r, TSR_E_FORMAT, name,
				"found member %.100s, expected dtype, shape and data_offsets only",
				key);
	}
	if (!m->dtype || !m->shape || !m->offsets)
		return FAIL(r, TSR_E_FORMAT, name, "no %s",
			    !m->dtype	? "dtype"
			    : !m->shape ? "shape"
					: "data_offsets");
	return TSR_OK;
}

static enum tsr_status read_dtype(struct reading *r, struct tsr_st_entry *a,
				  const struct tsr_json *v)
{
	const char *name = tsr_json_string(v);

	if (!name)
		return FAIL(r, TSR_E_FORMAT, a->name, "dtype is not a string");
	a->dtype = tsr_dtype_find(name);
	if (a->dtype == TSR_DTYPE_COUNT)
		return FAIL(r, TSR_E_FORMAT, a->name, "unknown dtype %.40s", name);
	return TSR_OK;
}

static enum tsr_status read_shape(struct reading *r, struct tsr_st_entry *a,
				  const struct tsr_json *v)
{
	const unsigned bits = tsr_dtype_bits(a->dtype);
	const size_t rank = tsr_json_size(v);
	uint64_t nbits, *shape;

	if (!tsr_json_is_list(v))
		return FAIL(r, TSR_E_FORMAT, a->name, "shape is not an array");
	if (rank > TSR_RANK_MAX)
		return FAIL(r, TSR_E_LIMIT, a->name, "rank %zu is over the limit of %u", rank,
			    TSR_RANK_MAX);
	TSR_TRY(TSR_ARENA_NEW(&shape, rank, r->arena, tsr_fail_nomem(r->err, r->path)));
	a->shape = shape;
	for (const struct tsr_json *d = tsr_json_first(v); d; d = tsr_json_next(d)) {
		if (!tsr_json_u64(d, &shape[a->rank++]))
			return FAIL(r, TSR_E_FORMAT, a->name,
				    "shape has an entry that is not an integer");
	}
	if (!tsr_shape_numel(a->rank, shape, &a->numel))
		return FAIL(r, TSR_E_FORMAT, a->name, "shape overflows 64 bits");
	if (__builtin_mul_overflow(a->numel, (uint64_t)bits, &nbits))
		return FAIL(r, TSR_E_FORMAT, a->name, "shape overflows 64 bits of size");
	if (nbits % 8)
		return FAIL(r, TSR_E_FORMAT, a->name,
			    "misaligned: %" PRIu64 " elements of %u bits are not whole bytes",
			    a->numel, bits);
	a->nbytes = nbits / 8;
	return TSR_OK;
}

/* The start goes to a->offset, for now relative to the data. */
static enum tsr_status read_offsets(struct reading *r, struct tsr_st_entry *a,
				    const struct tsr_json *v)
{
	const struct tsr_json *first = NULL, *second = NULL;
	uint64_t end;

	if (tsr_json_is_list(v))
		first = tsr_json_first(v);
	if (first)
		second = tsr_json_next(first);
	if (!second || tsr_json_next(second) || !tsr_json_u64(first, &a->offset) ||
	    !tsr_json_u64(second, &end))
		return FAIL(r, TSR_E_FORMAT, a->name, "data_offsets is not a pair of integers");
	if (end < a->offset || end - a->offset != a->nbytes)
		return FAIL(r, TSR_E_FORMAT, a->name,
			    "found data_offsets [%" PRIu64 ", %" PRIu64 "], expected %" PRIu64
			    " bytes for its shape",
			    a->offset, end, a->nbytes);
	if (end > r->data_nbytes)
		return FAIL(r, TSR_E_FORMAT, a->name,
			    "data ends at byte %" PRIu64 ", expected at most %" PRIu64
			    " (truncated file?)",
			    end, r->data_nbytes);
	return TSR_OK;
}

static enum tsr_status read_entry(struct reading *r, const struct tsr_json *entry)
{
	struct tsr_st_entry *a;
	struct entry_members m;

	if (strlen(tsr_json_key(entry)) > TSR_NAME_MAX)
		return tsr_fail(r->err, TSR_E_LIMIT,
				"%s: tensor %.40s...: name of %zu bytes is over the limit of %u",
				r->path, tsr_json_key(entry), strlen(tsr_json_key(entry)),
				TSR_NAME_MAX);
	TSR_TRY(find_members(r, entry, &m));
	TSR_TRY(TSR_GROW(&r->c->arrays, r->c->narrays, r->err, r->path));
	a = &r->c->arrays[r->c->narrays];
	*a = (struct tsr_st_entry){ .name = tsr_arena_string(r->arena, tsr_json_key(entry)),
				    .tag = r->c->narrays };
	if (!a->name)
		return tsr_fail_nomem(r->err, r->path);
	r->c->narrays++;
	TSR_TRY(read_dtype(r, a, m.dtype));
	TSR_TRY(read_shape(r, a, m.shape));
	return read_offsets(r, a, m.offsets);
}

/* The value of an entry of the metadata. */
static const char *keep_value(struct reading *r, const char *value)
{
	char *large = NULL;

	if (strlen(value) < TSR_ST_META_LARGE)
		return tsr_arena_string(r->arena, value);
	large = strdup(value);
	if (large)
		r->c->large[r->c->nlarge++] = large;
	return large;
}

static enum tsr_status read_metadata(struct reading *r, const struct tsr_json *object)
{
	const size_t n = tsr_json_size(object);

	if (tsr_json_type(object) != TSR_JSON_OBJECT)
		return tsr_fail(r->err, TSR_E_FORMAT, "%s: __metadata__ is not an object", r->path);
	r->c->meta = calloc(n + 1, sizeof(*r->c->meta));
	r->c->large = calloc(n + 1, sizeof(*r->c->large));
	if (!r->c->meta || !r->c->large)
		return tsr_fail_nomem(r->err, r->path);
	for (const struct tsr_json *v = tsr_json_first(object); v; v = tsr_json_next(v)) {
		struct tsr_meta *m = &r->c->meta[r->c->nmeta];

		if (!tsr_json_string(v))
			return tsr_fail(r->err, TSR_E_FORMAT,
					"%s: __metadata__: value of %.200s is not a string",
					r->path, tsr_json_key(v));
		m->key = tsr_arena_string(r->arena, tsr_json_key(v));
		m->value = keep_value(r, tsr_json_string(v));
		r->c->nmeta++;
		if (!m->key || !m->value)
			return tsr_fail_nomem(r->err, r->path);
	}
	return TSR_OK;
}

/* Arrays with the same begin: the empty ones come first, by name. */
TSR_COMPARE_BY(by_offset, struct tsr_st_entry, TSR_ORDER(a->offset, b->offset),
	       tsr_order_then(TSR_ORDER(a->nbytes, b->nbytes), strcmp(a->name, b->name)))

/* No hole, no overlap, nothing after the last. */
static enum tsr_status check_coverage(struct reading *r, uint64_t data_start)
{
	struct tsr_st_contents *c = r->c;
	uint64_t at = 0;

	if (c->narrays)
		qsort(c->arrays, c->narrays, sizeof(*c->arrays), by_offset);
	for (size_t i = 0; i < c->narrays; i++) {
		struct tsr_st_entry *a = &c->arrays[i];

		if (a->offset != at)
			return FAIL(r, TSR_E_FORMAT, a->name,
				    "data begins at byte %" PRIu64 ", expected %" PRIu64 " (%s)",
				    a->offset, at, a->offset < at ? "overlap" : "hole");
		at += a->nbytes;
		a->offset += data_start;
	}
	if (at != r->data_nbytes)
		return tsr_fail(r->err, TSR_E_FORMAT,
				"%s: found %" PRIu64 " bytes of data, expected %" PRIu64, r->path,
				r->data_nbytes, at);
	return TSR_OK;
}

/*
 * One member at a time: a tree of all of them would be many times as large as the header, which may
 * have 100 MB.
 */
static enum tsr_status read_root(struct reading *r, const struct tsr_json_rules *rules,
				 uint64_t data_start)
{
	const char *text = r->c->header;
	const size_t nbytes = r->c->header_nbytes;
	size_t at = 0;

	if (text[strspn(text, " \t\n\r")] != '{')
		return tsr_fail(r->err, TSR_E_FORMAT, "%s: header is not a JSON object", r->path);
	for (;;) {
		TSR_OWNED(tsr_json_free) struct tsr_json *v = NULL;

		TSR_TRY(tsr_json_take_member(text, nbytes, &at, rules, &v, r->err));
		if (!v)
			return check_coverage(r, data_start);
		TSR_TRY(strcmp(tsr_json_key(v), "__metadata__") == 0 ? read_metadata(r, v)
								     : read_entry(r, v));
	}
}

/* Read the bytes of the header, once its length is known to fit the file. */
static enum tsr_status read_header(const struct tsr_file *f, struct tsr_st_contents *c,
				   struct tsr_err *err)
{
	const char *path = tsr_file_path(f);
	const uint64_t size = tsr_file_size(f);
	unsigned char prefix[8];
	uint64_t n;

	if (size < sizeof(prefix))
		return tsr_fail(err, TSR_E_FORMAT,
				"%s: too short for a safetensors file: found %" PRIu64
				" bytes, expected at least 8",
				path, size);
	TSR_TRY(tsr_file_read(f, prefix, sizeof(prefix), 0, err));
	n = tsr_get_le(prefix, sizeof(prefix));
	if (n > TSR_ST_HEADER_MAX)
		return tsr_fail(err, TSR_E_FORMAT,
				"%s: not a safetensors file: header of %" PRIu64
				" bytes is over the limit of %" PRIu64,
				path, n, TSR_ST_HEADER_MAX);
	if (n > size - sizeof(prefix))
		return tsr_fail(err, TSR_E_FORMAT,
				"%s: truncated header: found a file of %" PRIu64
				" bytes, expected at least %" PRIu64 " for a header of %" PRIu64,
				path, size, n + sizeof(prefix), n);
	c->header = malloc(n + 1);
	if (!c->header)
		return tsr_fail_nomem(err, path);
	c->header[n] = '\0';
	c->header_nbytes = n;
	return tsr_file_read(f, c->header, n, sizeof(prefix), err);
}

struct tsr_json_rules tsr_st_rules(const char *path)
{
	return (struct tsr_json_rules){
		.file = path,
		.part = "header",
		.member = "tensor",
		.max_depth = 4,
		.max_values = TSR_ST_VALUES_MAX,
		.integers_only = true,
	};
}

enum tsr_status tsr_st_read(const struct tsr_file *f, struct tsr_arena *arena,
			    struct tsr_st_contents *ret, struct tsr_err *err)
{
	TSR_SCOPED(tsr_st_contents_free) struct tsr_st_contents c = { 0 };
	struct reading r = { .path = tsr_file_path(f), .c = &c, .arena = arena, .err = err };
	const struct tsr_json_rules rules = tsr_st_rules(r.path);

	TSR_TRY(read_header(f, &c, err));
	r.data_nbytes = tsr_file_size(f) - 8 - c.header_nbytes;
	TSR_TRY(tsr_json_check(c.header, c.header_nbytes, &rules, err));
	TSR_TRY(read_root(&r, &rules, 8 + c.header_nbytes));
	*ret = c;
	c = (struct tsr_st_contents){ 0 };
	return TSR_OK;
}

void tsr_st_contents_free(struct tsr_st_contents *c)
{
	for (size_t i = 0; i < c->nlarge; i++)
		free(c->large[i]);
	free(c->large);
	free(c->arrays);
	free(c->meta);
	free(c->header);
	*c = (struct tsr_st_contents){ 0 };
}

void tsr_st_drop_header(struct tsr_st_contents *c)
{
	free(c->header);
	c->header = NULL;
	c->header_nbytes = 0;
}

/* --- Writing -------------------------------------------------------------------------------- */

TSR_COMPARE_BY(in_reference_order, struct tsr_st_entry, TSR_ORDER(b->dtype, a->dtype),
	       strcmp(a->name, b->name))

void tsr_st_sort(struct tsr_st_entry *entries, size_t n)
{
	if (n)
		qsort(entries, n, sizeof(*entries), in_reference_order);
}

TSR_COMPARE(by_tag, struct tsr_st_entry, TSR_ORDER(a->tag, b->tag))

void tsr_st_sort_by_tag(struct tsr_st_entry *entries, size_t n)
{
	if (n)
		qsort(entries, n, sizeof(*entries), by_tag);
}

uint64_t tsr_st_layout(struct tsr_st_entry *entries, size_t n)
{
	uint64_t at = 0;

	for (size_t i = 0; i < n; i++) {
		entries[i].offset = at;
		at += entries[i].nbytes;
	}
	return at;
}

void tsr_st_put_entry(const struct tsr_st_entry *e, struct tsr_text *json)
{
	tsr_json_open(json, e->name, '{');
	tsr_json_put_string(json, "dtype", tsr_dtype_name(e->dtype));
	tsr_json_put_u64s(json, "shape", e->shape, e->rank);
	tsr_json_open(json, "data_offsets", '[');
	tsr_json_put_u64(json, NULL, e->offset);
	tsr_json_put_u64(json, NULL, e->offset + e->nbytes);
	tsr_json_close(json, ']');
	tsr_json_close(json, '}');
}

void tsr_st_compose(const struct tsr_st_entry *entries, size_t n, const struct tsr_meta *meta,
		    size_t nmeta, struct tsr_text *json)
{
	tsr_json_open(json, NULL, '{');
	if (nmeta) {
		tsr_json_open(json, "__metadata__", '{');
		for (size_t i = 0; i < nmeta; i++)
			tsr_json_put_string(json, meta[i].key, meta[i].value);
		tsr_json_close(json, '}');
	}
	for (size_t i = 0; i < n; i++)
		tsr_st_put_entry(&entries[i], json);
	tsr_json_close(json, '}');
}

enum tsr_status tsr_st_frame(struct tsr_text *json, uint64_t json_nbytes, const char *path,
			     struct tsr_err *err)
{
	static const char spaces[] = "                                ";
	const uint64_t padded = (json_nbytes + 7) / 8 * 8;
	char prefix[8] = { 0 };

	if (padded > TSR_ST_HEADER_MAX)
		return tsr_fail(err, TSR_E_LIMIT,
				"%s: its header would have %" PRIu64
				" bytes, over the limit of %" PRIu64,
				path, padded, TSR_ST_HEADER_MAX);
	while (!json->failed && json->nbytes < padded) {
		const uint64_t more = padded - json->nbytes;

		tsr_text_put(json, spaces, more < sizeof(spaces) - 1 ? more : sizeof(spaces) - 1);
	}
	tsr_text_put(json, prefix, sizeof(prefix));
	if (json->failed)
		return tsr_fail_nomem(err, path);
	tsr_put_le(prefix, padded, sizeof(prefix));
	memmove(json->bytes + sizeof(prefix), json->bytes, padded);
	memcpy(json->bytes, prefix, sizeof(prefix));
	return TSR_OK;
}
