/* SPDX-License-Identifier: Apache-2.0 */
/* Earlier reports in JSON, read back and compared with. */
#include "compare/baseline.h"

#include <stdio.h>

#include "base/fail.h"

/* A report of 1,000 tensors in all pairs of codecs is 15 MB. */
#define NBYTES_MAX (UINT64_C(256) << 20)
#define VALUES_MAX 16000000u
#define DEPTH_MAX 12

const struct tsr_baseline tsr_audit_baseline = { .schema = "tersor.audit.v1",
						 .list = "checkpoints" };

const struct tsr_baseline tsr_sweep_baseline = { .schema = "tersor.sweep.v1",
						 .list = "codecs",
						 .names = { "codec", "exponent" },
						 .derived = { "finite", "mean_rel" },
						 .named = true };

const struct tsr_baseline tsr_results_baseline = { .schema = "tersor.sweep-library.v1",
						   .list = "exponents" };

/* --- Names ------------------------------------------------------------------------------------ */

/* What an element of an array is about: "softsign8 + sqrt8", "wte.weight", or its number. */
static void name_element(const struct tsr_json *v, size_t i, char text[200])
{
	const char *name = tsr_json_string(tsr_json_get(v, "name"));
	const char *codec = tsr_json_string(tsr_json_get(v, "codec"));
	const char *momentum = tsr_json_string(tsr_json_get(v, "momentum"));
	const char *variance = tsr_json_string(tsr_json_get(v, "variance"));
	uint64_t exponent = i;

	tsr_json_u64(tsr_json_get(v, "exponent"), &exponent);
	if (momentum || variance)
		snprintf(text, 200, "%.90s + %.90s", momentum ? momentum : "as it is",
			 variance ? variance : "as it is");
	else if (name || codec)
		snprintf(text, 200, "%.190s", name ? name : codec);
	else
		snprintf(text, 200, "%" PRIu64, exponent);
}

const struct tsr_json *tsr_baseline_find(const struct tsr_json *array, const char *name)
{
	const struct tsr_json *v = tsr_json_first(array);
	char text[200];

	for (size_t i = 0; v; v = tsr_json_next(v)) {
		name_element(v, i++, text);
		if (strcmp(text, name) == 0)
			break;
	}
	return v;
}

/* --- Reading ---------------------------------------------------------------------------------- */

static enum tsr_status check(const struct tsr_baseline *b, const struct tsr_json *root,
			     const char *path, struct tsr_err *err)
{
	const char *schema = tsr_json_string(tsr_json_get(root, "schema"));
	const struct tsr_json *list = tsr_json_get(root, b->list);

	if (!schema)
		return tsr_fail(err, TSR_E_FORMAT, "%s: found no schema, expected a report with %s",
				path, b->schema);
	if (strcmp(schema, b->schema) != 0)
		return tsr_fail(err, TSR_E_UNSUPPORTED, "%s: found schema %.60s, expected %s", path,
				schema, b->schema);
	if (!tsr_json_is_list(list))
		return tsr_fail(err, TSR_E_FORMAT, "%s: %s: found no %s", path, b->schema, b->list);
	/* A list by names has each of them once. */
	for (const struct tsr_json *v = b->named ? tsr_json_first(list) : NULL; v;
	     v = tsr_json_next(v)) {
		const char *name = tsr_json_string(tsr_json_get(v, "codec"));

		if (!name)
			return tsr_fail(err, TSR_E_FORMAT, "%s: found an element without codec",
					path);
		if (tsr_baseline_find(list, name) != v)
			return tsr_fail(err, TSR_E_FORMAT, "%s: found codec %.60s twice", path,
					name);
	}
	return TSR_OK;
}

enum tsr_status tsr_baseline_load(const struct tsr_baseline *b, const char *path,
				  struct tsr_json **ret, struct tsr_err *err)
{
	const struct tsr_json_rules rules = {
		.file = path, .part = "report", .max_depth = DEPTH_MAX, .max_values = VALUES_MAX
	};
	TSR_OWNED(tsr_file_close) struct tsr_file *f = NULL;
	TSR_OWNED(tsr_json_free) struct tsr_json *root = NULL;

	TSR_TRY(tsr_file_open(path, &f, err));
	TSR_TRY(tsr_json_read_file(f, NBYTES_MAX, &rules, &root, err));
	TSR_TRY(check(b, root, path, err));
	return TSR_GIVE(ret, root);
}

/* --- Comparing -------------------------------------------------------------------------------- */

/* Where a value is: the names on the way to it. */
struct place {
	const struct place *above;
	const char *name;
};

struct comparing {
	const struct tsr_baseline *baseline;
	tsr_baseline_each *each;
	void *ctx;
	size_t n; /* figures that differ */
};

/* A value that is no array or object. */
static void put_value(const struct tsr_json *v, char text[48])
{
	const char *string = v ? tsr_json_string(v) : NULL;
	uint64_t integer;
	double number;
	bool boolean;

	if (!v)
		snprintf(text, 48, "none");
	else if (string)
		snprintf(text, 48, "%.40s", string);
	else if (tsr_json_u64(v, &integer))
		snprintf(text, 48, "%" PRIu64, integer);
	else if (tsr_json_double(v, &number))
		tsr_json_format_double(text, 48, number);
	else if (tsr_json_bool(v, &boolean))
		snprintf(text, 48, "%s", boolean ? "true" : "false");
	else
		snprintf(text, 48, "%s", tsr_json_type(v) == TSR_JSON_NULL ? "null" : "...");
}

/* The names of a place: those that are members of their own, and the others joined to a figure. */
static unsigned put_place(const struct tsr_baseline *b, const struct place *p,
			  struct tsr_baseline_change *c)
{
	const unsigned depth = p ? put_place(b, p->above, c) : 0;
	const bool is_number = p && strspn(p->name, "0123456789") == strlen(p->name);
	const size_t used = strlen(c->figure);

	if (!p)
		return 0;
	if ((depth == 0 || (depth == 1 && is_number)) && b->names[depth])
		c->name[depth] = p->name;
	else
		snprintf(c->figure + used, sizeof(c->figure) - used, "%s%.80s", used ? ": " : "",
			 p->name);
	return depth + 1;
}

static void compare(struct comparing *c, const struct tsr_json *was, const struct tsr_json *now,
		    const struct place *p);

/* Elements at the same place belong together. */
static void compare_in_order(struct comparing *c, const struct tsr_json *was,
			     const struct tsr_json *now, const struct place *p)
{
	const struct tsr_json *a = tsr_json_first(was), *b = tsr_json_first(now);
	char name[200];
	const struct place at = { p, name };

	for (size_t i = 0; a || b; i++) {
		name_element(b ? b : a, i, name);
		compare(c, a, b, &at);
		a = a ? tsr_json_next(a) : NULL;
		b = b ? tsr_json_next(b) : NULL;
	}
}

/* Whether members of this key are compared now: not paths, which may differ between equal reports. */
static bool is_compared(const struct tsr_baseline *b, const char *key, bool derived)
{
	bool is = false;

	for (unsigned i = 0; i < 2; i++)
		is = is || (b->derived[i] && strcmp(key, b->derived[i]) == 0);
	return is == derived && strcmp(key, "file") != 0 && strcmp(key, "inputs") != 0 &&
	       strcmp(key, "moved") != 0;
}

/* Members with the same key, and elements with the same name, belong together. */
static void compare_by_name(struct comparing *c, const struct tsr_json *was,
			    const struct tsr_json *now, const struct place *p, bool derived)
{
	const bool members = tsr_json_type(now) == TSR_JSON_OBJECT;
	const struct tsr_json *(*find)(const struct tsr_json *,
				       const char *) = members ? tsr_json_get : tsr_baseline_find;
	char name[200];

	for (unsigned side = 0; side < 2; side++) {
		const struct tsr_json *v = tsr_json_first(side ? was : now);
		struct place at = { p, name };

		/* Only the baseline's list may have more elements. */
		for (size_t i = 0; v && (!side || members || p); v = tsr_json_next(v)) {
			/* Lists of things that have names of their own do not add theirs. */
			const bool list = members && tsr_json_type(v) == TSR_JSON_ARRAY &&
					  tsr_json_type(tsr_json_first(v)) == TSR_JSON_OBJECT;

			if (members)
				at.name = tsr_json_key(v);
			else
				name_element(v, i++, name);
			if (members && !is_compared(c->baseline, at.name, derived))
				continue;
			if (!side)
				compare(c, find(was, at.name), v, list ? p : &at);
			else if (find(was, at.name) != v || !find(now, at.name))
				compare(c, v, NULL, list ? p : &at);
		}
	}
}

static void compare(struct comparing *c, const struct tsr_json *was, const struct tsr_json *now,
		    const struct place *p)
{
	struct tsr_baseline_change change = { .figure = "" };
	const size_t n = c->n;

	if (was && now && tsr_json_type(was) == tsr_json_type(now)) {
		if (tsr_json_type(now) == TSR_JSON_OBJECT) {
			compare_by_name(c, was, now, p, false);
			if (c->n == n)
				compare_by_name(c, was, now, p, true);
			return;
		}
		if (tsr_json_type(now) == TSR_JSON_ARRAY) {
			if (c->baseline->named)
				compare_by_name(c, was, now, p, false);
			else
				compare_in_order(c, was, now, p);
			return;
		}
	}
	put_value(was, change.was);
	put_value(now, change.now);
	if (strcmp(change.was, change.now) == 0)
		return;
	c->n++;
	put_place(c->baseline, p, &change);
	c->each(c->ctx, &change);
}

bool tsr_baseline_compare(const struct tsr_baseline *b, const struct tsr_json *was,
			  const struct tsr_text *now, tsr_baseline_each *each, void *ctx,
			  size_t *n_ret)
{
	const struct tsr_json_rules rules = {
		.file = "report", .part = "JSON", .max_depth = DEPTH_MAX, .max_values = SIZE_MAX
	};
	struct comparing c = { .baseline = b, .each = each, .ctx = ctx };
	TSR_OWNED(tsr_json_free) struct tsr_json *root = NULL;
	struct tsr_err err;

	if (tsr_json_parse(now->bytes, now->nbytes, &rules, &root, &err) != TSR_OK)
		return false;
	compare(&c, was, root, NULL);
	*n_ret = c.n;
	return true;
}
