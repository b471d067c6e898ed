/* SPDX-License-Identifier: Apache-2.0 */
/* Earlier reports of audits: read back and compared with. */
#include "report/audit_baseline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "io/file.h"
#include "report/audit_report.h"
#include "report/render/format.h"

/* A report of 1,000 tensors in all pairs of codecs is 15 MB. */
#define NBYTES_MAX (UINT64_C(256) << 20)
#define VALUES_MAX 16000000u

/* --- Reading ------------------------------------------------------------------------------------ */

static enum tsr_status check(const struct tsr_json *root, const char *path, struct tsr_err *err)
{
	const char *schema = tsr_json_string(tsr_json_get(root, "schema"));
	const struct tsr_json *checkpoints = tsr_json_get(root, "checkpoints");

	if (!schema)
		return tsr_fail(err, TSR_E_FORMAT,
				"%s: found no schema, expected a report with " TSR_AUDIT_SCHEMA,
				path);
	if (strcmp(schema, TSR_AUDIT_SCHEMA) != 0)
		return tsr_fail(err, TSR_E_UNSUPPORTED,
				"%s: found schema %.60s, expected " TSR_AUDIT_SCHEMA, path, schema);
	if (!checkpoints || tsr_json_type(checkpoints) != TSR_JSON_ARRAY)
		return tsr_fail(err, TSR_E_FORMAT, "%s: report of an audit: found no checkpoints",
				path);
	return TSR_OK;
}

enum tsr_status tsr_audit_load(const char *path, struct tsr_json **ret, struct tsr_err *err)
{
	const struct tsr_json_rules rules = { .file = path,
					      .part = "report of an audit",
					      .max_depth = 12,
					      .max_values = VALUES_MAX };
	struct tsr_json *root = NULL;
	enum tsr_status status;
	struct tsr_file *f;

	TSR_TRY(tsr_file_open(path, &f, err));
	status = tsr_json_read_file(f, NBYTES_MAX, &rules, &root, err);
	tsr_file_close(f);
	TSR_TRY(status);
	status = check(root, path, err);
	if (status == TSR_OK)
		*ret = root;
	else
		tsr_json_free(root);
	return status;
}

/* --- Comparing ---------------------------------------------------------------------------------- */

struct comparing {
	struct tsr_audit_change *changes;
	size_t n, room;
	bool failed;
};

/* Where a value is: the names on the way to it. */
struct place {
	const struct place *above;
	const char *name;
};

static void put_place(const struct place *p, char *text, size_t room)
{
	size_t used = 0;

	if (!p)
		return;
	put_place(p->above, text, room);
	used = strlen(text);
	snprintf(text + used, room - used, "%s%.80s", used ? ": " : "", p->name);
}

/* A value that is no array or object. */
static void put_value(const struct tsr_json *v, char text[48])
{
	const char *string = v ? tsr_json_string(v) : NULL;
	double number;
	bool boolean;

	if (!v)
		snprintf(text, 48, "none");
	else if (string)
		snprintf(text, 48, "%.40s", string);
	else if (tsr_json_double(v, &number))
		tsr_json_format_double(text, 48, number);
	else if (tsr_json_bool(v, &boolean))
		snprintf(text, 48, "%s", boolean ? "true" : "false");
	else
		snprintf(text, 48, "%s", tsr_json_type(v) == TSR_JSON_NULL ? "null" : "...");
}

static void add_change(struct comparing *c, const struct place *p, const char *was, const char *now)
{
	struct tsr_audit_change *changes = c->changes;

	if (++c->n > TSR_AUDIT_CHANGES_MAX || c->failed)
		return;
	if (c->n > c->room) {
		c->room = 2 * c->room + 16;
		changes = realloc(changes, c->room * sizeof(*changes));
		c->failed = !changes;
		if (c->failed)
			return;
		c->changes = changes;
	}
	changes[c->n - 1] = (struct tsr_audit_change){ .where = "" };
	put_place(p, changes[c->n - 1].where, sizeof(changes->where));
	snprintf(changes[c->n - 1].was, sizeof(changes->was), "%s", was);
	snprintf(changes[c->n - 1].now, sizeof(changes->now), "%s", now);
}

static void compare(struct comparing *c, const struct tsr_json *was, const struct tsr_json *now,
		    const struct place *p);

/* What an element of an array is about: "softsign8 + sqrt8", "wte.weight", or its number. */
static void name_element(const struct tsr_json *v, size_t i, char *text, size_t room)
{
	const char *name = tsr_json_string(tsr_json_get(v, "name"));
	const char *codec = tsr_json_string(tsr_json_get(v, "codec"));
	const char *momentum = tsr_json_string(tsr_json_get(v, "momentum"));
	const char *variance = tsr_json_string(tsr_json_get(v, "variance"));

	if (momentum || variance)
		snprintf(text, room, "%.90s + %.90s", momentum ? momentum : "as it is",
			 variance ? variance : "as it is");
	else if (name || codec)
		snprintf(text, room, "%.190s", name ? name : codec);
	else
		snprintf(text, room, "%zu", i);
}

static void compare_arrays(struct comparing *c, const struct tsr_json *was,
			   const struct tsr_json *now, const struct place *p)
{
	const struct tsr_json *a = tsr_json_first(was), *b = tsr_json_first(now);
	char name[200];

	for (size_t i = 0; a || b; i++) {
		const struct place at = { p, name };

		name_element(b ? b : a, i, name, sizeof(name));
		compare(c, a, b, &at);
		a = a ? tsr_json_next(a) : NULL;
		b = b ? tsr_json_next(b) : NULL;
	}
}

/* Members that may differ between equal audits. */
static bool is_ignored(const char *key)
{
	return strcmp(key, "file") == 0 || strcmp(key, "inputs") == 0 || strcmp(key, "moved") == 0;
}

/* @where names lists of things that have names of their own: these do not add to it. */
static const struct place *below(const struct place *at, const struct tsr_json *v)
{
	return tsr_json_type(v) == TSR_JSON_ARRAY && tsr_json_first(v) &&
			       tsr_json_type(tsr_json_first(v)) == TSR_JSON_OBJECT
		       ? at->above
		       : at;
}

static void compare_objects(struct comparing *c, const struct tsr_json *was,
			    const struct tsr_json *now, const struct place *p)
{
	for (const struct tsr_json *v = tsr_json_first(now); v; v = tsr_json_next(v)) {
		const struct place at = { p, tsr_json_key(v) };

		if (!is_ignored(at.name))
			compare(c, tsr_json_get(was, at.name), v, below(&at, v));
	}
	for (const struct tsr_json *v = tsr_json_first(was); v; v = tsr_json_next(v)) {
		const struct place at = { p, tsr_json_key(v) };

		if (!is_ignored(at.name) && !tsr_json_get(now, at.name))
			compare(c, v, NULL, below(&at, v));
	}
}

static void compare(struct comparing *c, const struct tsr_json *was, const struct tsr_json *now,
		    const struct place *p)
{
	char before[48], after[48];

	if (was && now && tsr_json_type(was) == tsr_json_type(now)) {
		if (tsr_json_type(now) == TSR_JSON_OBJECT) {
			compare_objects(c, was, now, p);
			return;
		}
		if (tsr_json_type(now) == TSR_JSON_ARRAY) {
			compare_arrays(c, was, now, p);
			return;
		}
	}
	put_value(was, before);
	put_value(now, after);
	if (strcmp(before, after) != 0)
		add_change(c, p, before, after);
}

bool tsr_audit_compare(const struct tsr_json *was, const struct tsr_json *now,
		       struct tsr_audit_change **ret, size_t *n_ret)
{
	struct comparing c = { .n = 0 };

	compare(&c, was, now, NULL);
	*ret = c.changes;
	*n_ret = c.n;
	return !c.failed;
}

/* --- Showing ------------------------------------------------------------------------------------ */

#define SHOWN 20

void tsr_audit_put_changes(const struct tsr_audit_change *changes, size_t n, unsigned verbose,
			   struct tsr_text *out)
{
	const size_t kept = n < TSR_AUDIT_CHANGES_MAX ? n : TSR_AUDIT_CHANGES_MAX;
	const size_t shown = verbose || kept < SHOWN ? kept : SHOWN;

	tsr_text_printf(out, "\n%s figures differ from the baseline\n", tsr_format_count(n).text);
	for (size_t i = 0; i < shown; i++)
		tsr_text_printf(out, "%s\n  was %s, is %s\n",
				tsr_format_name(changes[i].where, TSR_COLUMNS).text, changes[i].was,
				changes[i].now);
	if (shown < n)
		tsr_text_printf(out, "and %s more\n", tsr_format_count(n - shown).text);
}

void tsr_audit_put_moved(const struct tsr_audit_change *changes, size_t n, struct tsr_text *json)
{
	tsr_json_open(json, "moved", '[');
	for (size_t i = 0; i < n && i < TSR_AUDIT_CHANGES_MAX; i++) {
		tsr_json_open(json, NULL, '{');
		tsr_json_put_string(json, "figure", changes[i].where);
		tsr_json_put_string(json, "was", changes[i].was);
		tsr_json_put_string(json, "now", changes[i].now);
		tsr_json_close(json, '}');
	}
	tsr_json_close(json, ']');
}
