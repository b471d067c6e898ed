/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of parts: what each did and found, as JSON. */
#include "parts/part_report.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fail.h"
#include "io/dir.h"
#include "io/file.h"
#include "io/hash.h"
#include "io/meeting.h"
#include "io/temporary.h"
#include "parts/outcome.h"
#include "tersor/version.h"

#define SCHEMA "tersor.part.v1"
#define TOOL "tersor " TSR_VERSION
#define HASH_FORM ",\"xxh3\":\"%016" PRIx64 "\"}\n"

/* A terabyte of FP32 in one part has a million pieces, of about a kilobyte each. */
#define REPORT_NBYTES_MAX (UINT64_C(8) << 30)
#define REPORT_VALUES_MAX 16000000u

/* --- Writing ------------------------------------------------------------------------------------ */

void tsr_part_report_begin(const struct tsr_part_request *r, struct tsr_text *json)
{
	tsr_json_open(json, NULL, '{');
	tsr_json_put_string(json, "schema", SCHEMA);
	tsr_json_put_string(json, "tool", TOOL);
	tsr_json_put_string(json, "command", r->command);
	tsr_json_put_strings(json, "args", r->args, r->nargs);
	tsr_json_put_string(json, "path", r->path);
	tsr_json_put_u64(json, "part", r->number);
	tsr_json_put_u64(json, "parts", r->count);
	tsr_json_open(json, "runs", '[');
}

static void put_hash(struct tsr_text *json, const char *key, uint64_t hash)
{
	char digits[17];

	snprintf(digits, sizeof(digits), "%016" PRIx64, hash);
	tsr_json_put_string(json, key, digits);
}

void tsr_part_report_open_run(struct tsr_text *json, const struct tsr_part_run *run)
{
	tsr_json_open(json, NULL, '{');
	tsr_json_put_u64(json, "file", run->file);
	put_hash(json, "inputs", run->inputs.all);
	put_hash(json, "times", run->inputs.times);
	tsr_json_put_u64(json, "jobs", run->njobs);
	tsr_json_put_u64(json, "first", run->first);
	tsr_json_put_u64(json, "end", run->end);
	tsr_json_open(json, "found", '[');
}

void tsr_part_report_add(struct tsr_text *json, const struct tsr_text *found)
{
	tsr_json_put_string(json, NULL, found->nbytes ? found->bytes : "");
	json->failed = json->failed || found->failed;
}

void tsr_part_report_close_run(struct tsr_text *json, const struct tsr_err *failure)
{
	tsr_json_close(json, ']');
	if (failure) {
		tsr_json_open(json, "failed", '{');
		tsr_json_put_u64(json, "status", failure->code);
		tsr_json_put_u64(json, "hint", failure->hint);
		tsr_json_put_string(json, "message", failure->msg);
		tsr_json_close(json, '}');
	}
	tsr_json_close(json, '}');
}

void tsr_part_report_end(struct tsr_text *json, const struct tsr_part_file *files, size_t n,
			 const struct tsr_part_data *data)
{
	tsr_json_close(json, ']');
	tsr_json_open(json, "files", '[');
	for (size_t i = 0; i < n; i++) {
		tsr_json_open(json, NULL, '{');
		tsr_json_put_string(json, "path", files[i].path);
		tsr_json_put_u64(json, "nbytes", files[i].nbytes);
		put_hash(json, "mark", files[i].mark);
		tsr_json_put_string(json, "wrote",
				    files[i].wrote.nbytes ? files[i].wrote.bytes : "");
		json->failed = json->failed || files[i].wrote.failed;
		tsr_json_close(json, '}');
	}
	tsr_json_close(json, ']');
	tsr_json_put_u64(json, "data_nbytes", data->nbytes);
	put_hash(json, "data_xxh3", data->hash);
	put_hash(json, "xxh3", json->failed ? 0 : tsr_hash(json->bytes, json->nbytes, 0));
	tsr_json_close(json, '}');
	tsr_text_puts(json, "\n");
}

/* --- Reading ------------------------------------------------------------------------------------ */

static enum tsr_status bad(const char *name, const char *member, struct tsr_err *err)
{
	return tsr_fail(err, TSR_E_FORMAT, "%s: is no report of a part: its %s is not as expected",
			name, member);
}

/* A report ends in the hash of all that goes before. */
static enum tsr_status check_hash(const char *name, const char *text, size_t nbytes,
				  struct tsr_err *err)
{
	const size_t n = sizeof(HASH_FORM) - sizeof("%016" PRIx64) + 16;
	char end[sizeof(HASH_FORM) + 16];

	if (nbytes > n) {
		snprintf(end, sizeof(end), HASH_FORM, tsr_hash(text, nbytes - n, 0));
		if (memcmp(end, text + nbytes - n, n) == 0)
			return TSR_OK;
	}
	return tsr_fail(err, TSR_E_FORMAT,
			"%s: is damaged, or no report of a part; do that part again", name);
}

static enum tsr_status take_numbers(struct tsr_part_report *r, struct tsr_err *err)
{
	uint64_t number, count;

	if (!tsr_json_u64(tsr_json_get(r->root, "part"), &number) ||
	    !tsr_json_u64(tsr_json_get(r->root, "parts"), &count) || count > TSR_PARTS_MAX ||
	    number < 1 || number > count)
		return bad(r->name, "part", err);
	r->number = (unsigned)number;
	r->count = (unsigned)count;
	return TSR_OK;
}

static bool take_hash(const struct tsr_json *v, uint64_t *ret)
{
	const char *text = tsr_json_string(v);
	char *end;

	if (!text || strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
		return false;
	*ret = strtoull(text, &end, 16);
	return true;
}

static enum tsr_status take_members(struct tsr_part_report *r, struct tsr_err *err)
{
	const char *schema = tsr_json_string(tsr_json_get(r->root, "schema"));
	const struct tsr_json *runs = tsr_json_get(r->root, "runs");

	if (!schema || strcmp(schema, SCHEMA) != 0)
		return bad(r->name, "schema", err);
	r->tool = tsr_json_string(tsr_json_get(r->root, "tool"));
	r->command = tsr_json_string(tsr_json_get(r->root, "command"));
	r->path = tsr_json_string(tsr_json_get(r->root, "path"));
	r->args = tsr_json_get(r->root, "args");
	if (!r->tool || !r->command || !r->path)
		return bad(r->name, "command", err);
	if (!r->args || tsr_json_type(r->args) != TSR_JSON_ARRAY)
		return bad(r->name, "args", err);
	for (const struct tsr_json *v = tsr_json_first(r->args); v; v = tsr_json_next(v)) {
		if (!tsr_json_string(v))
			return bad(r->name, "args", err);
	}
	if (!runs || tsr_json_type(runs) != TSR_JSON_ARRAY)
		return bad(r->name, "runs", err);
	r->run = tsr_json_first(runs);
	r->files = tsr_json_get(r->root, "files");
	if (!r->files || tsr_json_type(r->files) != TSR_JSON_ARRAY)
		return bad(r->name, "files", err);
	if (!tsr_json_u64(tsr_json_get(r->root, "data_nbytes"), &r->data.nbytes) ||
	    !take_hash(tsr_json_get(r->root, "data_xxh3"), &r->data.hash))
		return bad(r->name, "data_nbytes", err);
	return take_numbers(r, err);
}

enum tsr_status tsr_part_report_parse(const char *name, const char *text, size_t nbytes,
				      struct tsr_part_report *ret, struct tsr_err *err)
{
	const struct tsr_json_rules rules = { .file = name,
					      .part = "report of a part",
					      .max_depth = 6,
					      .max_values = REPORT_VALUES_MAX,
					      .integers_only = true };
	struct tsr_part_report r = { .name = strdup(name) };
	enum tsr_status status;

	if (!r.name)
		return tsr_fail_nomem(err, name);
	status = check_hash(name, text, nbytes, err);
	if (status == TSR_OK)
		status = tsr_json_parse(text, nbytes, &rules, &r.root, err);
	if (status == TSR_OK)
		status = take_members(&r, err);
	if (status == TSR_OK)
		*ret = r;
	else
		tsr_part_report_free(&r);
	return status;
}

void tsr_part_report_free(struct tsr_part_report *r)
{
	tsr_json_free(r->root);
	free(r->name);
	*r = (struct tsr_part_report){ .root = NULL };
}

static bool same_args(const struct tsr_json *a, const struct tsr_json *b)
{
	a = tsr_json_first(a);
	b = tsr_json_first(b);
	for (; a && b; a = tsr_json_next(a), b = tsr_json_next(b)) {
		if (strcmp(tsr_json_string(a), tsr_json_string(b)) != 0)
			return false;
	}
	return !a && !b;
}

enum tsr_status tsr_part_report_fits(const struct tsr_part_report *r,
				     const struct tsr_part_report *first, struct tsr_err *err)
{
	if (strcmp(r->tool, TOOL) != 0)
		return tsr_fail(err, TSR_E_FORMAT, "%s: found a part by %.60s, expected " TOOL,
				r->name, r->tool);
	if (strcmp(r->command, first->command) != 0)
		return tsr_fail(err, TSR_E_FORMAT, "%s: found a part of %.60s, expected one of %s",
				r->name, r->command, first->command);
	if (r->count != first->count)
		return tsr_fail(err, TSR_E_FORMAT, "%s: found one of %u parts, expected one of %u",
				r->name, r->count, first->count);
	if (strcmp(r->path, first->path) != 0 || !same_args(r->args, first->args))
		return tsr_fail(err, TSR_E_FORMAT,
				"%s: found other inputs or options than in %s; all parts have the "
				"same command line but for their number",
				r->name, first->name);
	return TSR_OK;
}

bool tsr_part_keeps_failure(enum tsr_status status)
{
	return status == TSR_E_FORMAT || status == TSR_E_UNSUPPORTED || status == TSR_E_LIMIT ||
	       status == TSR_E_BOUND;
}

/* Only failures that would be the same in any process are in reports. */
static bool take_failure(const struct tsr_json *v, struct tsr_part_run *ret)
{
	const char *message = tsr_json_string(tsr_json_get(v, "message"));
	uint64_t status, hint;

	ret->failed = v != NULL;
	if (!v)
		return true;
	if (!tsr_json_u64(tsr_json_get(v, "status"), &status) || status > TSR_E_BOUND ||
	    !tsr_part_keeps_failure((enum tsr_status)status) ||
	    !tsr_json_u64(tsr_json_get(v, "hint"), &hint) || hint > TSR_HINT_CHAIN || !message)
		return false;
	tsr_fail_hint(&ret->failure, (enum tsr_status)status, (enum tsr_hint)hint, "%s", message);
	return true;
}

enum tsr_status tsr_part_report_run(const struct tsr_part_report *r, struct tsr_part_run *ret,
				    struct tsr_err *err)
{
	const struct tsr_json *found;
	uint64_t n = 0;

	if (!r->run)
		return tsr_fail(err, TSR_E_FORMAT, "%s: does not say all that was done", r->name);
	found = tsr_json_get(r->run, "found");
	if (!tsr_json_u64(tsr_json_get(r->run, "file"), &ret->file) ||
	    !take_hash(tsr_json_get(r->run, "inputs"), &ret->inputs.all) ||
	    !take_hash(tsr_json_get(r->run, "times"), &ret->inputs.times) ||
	    !tsr_json_u64(tsr_json_get(r->run, "jobs"), &ret->njobs) ||
	    !tsr_json_u64(tsr_json_get(r->run, "first"), &ret->first) ||
	    !tsr_json_u64(tsr_json_get(r->run, "end"), &ret->end) || ret->first > ret->end ||
	    ret->end > ret->njobs || !found || tsr_json_type(found) != TSR_JSON_ARRAY)
		return bad(r->name, "runs", err);
	ret->found = tsr_json_first(found);
	for (const struct tsr_json *v = ret->found; v; v = tsr_json_next(v), n++) {
		if (!tsr_json_string(v))
			return bad(r->name, "found", err);
	}
	if (!take_failure(tsr_json_get(r->run, "failed"), ret))
		return bad(r->name, "failed", err);
	if (ret->failed ? n >= ret->end - ret->first : n != ret->end - ret->first)
		return tsr_fail(err, TSR_E_FORMAT,
				"%s: found what %" PRIu64 " jobs found, expected %" PRIu64, r->name,
				n, ret->end - ret->first);
	return TSR_OK;
}

void tsr_part_report_next(struct tsr_part_report *r)
{
	r->run = r->run ? tsr_json_next(r->run) : NULL;
}

void tsr_part_report_skip_to(struct tsr_part_report *r, uint64_t file)
{
	uint64_t found;

	while (r->run && tsr_json_u64(tsr_json_get(r->run, "file"), &found) && found < file)
		tsr_part_report_next(r);
}

/* --- Files that all parts write ----------------------------------------------------------------- */

/* Memory for reading a file of all parts again. */
struct reading {
	struct tsr_hasher *hasher;
	unsigned char bytes[1 << 18];
};

static bool take_file(const struct tsr_json *v, struct tsr_part_file *ret)
{
	ret->path = tsr_json_string(tsr_json_get(v, "path"));
	return ret->path && tsr_json_u64(tsr_json_get(v, "nbytes"), &ret->nbytes) &&
	       take_hash(tsr_json_get(v, "mark"), &ret->mark);
}

/* Read again what a part wrote into a file: the disk, the network or somebody else may have lost it. */
static enum tsr_status read_again(const struct tsr_part_report *r, const struct tsr_file *f,
				  const char *wrote, struct reading *b, struct tsr_err *err)
{
	struct tsr_outcome o = { .from = wrote };
	uint64_t at, left, hash;

	while (wrote && *o.from && !o.failed) {
		tsr_outcome_u64(&o, &at);
		tsr_outcome_u64(&o, &left);
		tsr_outcome_u64(&o, &hash);
		tsr_hasher_reset(b->hasher);
		for (size_t n; !o.failed && left; at += n, left -= n) {
			n = left < sizeof(b->bytes) ? (size_t)left : sizeof(b->bytes);
			TSR_TRY(tsr_file_read(f, b->bytes, n, at, err));
			tsr_hasher_add(b->hasher, b->bytes, n);
		}
		if (!o.failed && tsr_hasher_value(b->hasher) != hash)
			return tsr_fail(err, TSR_E_FORMAT,
					"%s: found other bytes before byte %" PRIu64
					" than part %u wrote; remove %s and do that part again",
					tsr_file_path(f), at, r->number, r->name);
	}
	return wrote && !o.failed ? TSR_OK : bad(r->name, "files", err);
}

static enum tsr_status check_written(const struct tsr_part_report *r, const char *path,
				     const char *wrote, struct tsr_err *err)
{
	struct reading *b = malloc(sizeof(*b));
	struct tsr_file *f = NULL;
	enum tsr_status status;

	if (!b)
		return tsr_fail_nomem(err, path);
	b->hasher = tsr_hasher_new();
	status = b->hasher ? tsr_file_open(path, &f, err) : tsr_fail_nomem(err, path);
	if (status == TSR_OK)
		status = read_again(r, f, wrote, b, err);
	tsr_file_close(f);
	tsr_hasher_free(b->hasher);
	free(b);
	return status;
}

enum tsr_status tsr_part_report_wrote(const struct tsr_part_report *r, const char *path,
				      uint64_t mark, struct tsr_err *err)
{
	struct tsr_part_file f;

	for (const struct tsr_json *v = tsr_json_first(r->files); v; v = tsr_json_next(v)) {
		if (!take_file(v, &f))
			return bad(r->name, "files", err);
		if (strcmp(f.path, path) == 0 && f.mark != mark)
			return tsr_fail(
				err, TSR_E_IO,
				"%s: part %u wrote into a file %s that is gone, and another "
				"is in its place; do that part again",
				r->name, r->number, path);
		if (strcmp(f.path, path) == 0)
			TSR_TRY(check_written(r, path, tsr_json_string(tsr_json_get(v, "wrote")),
					      err));
	}
	return TSR_OK;
}

/* Whether the files that a part wrote into are there, or what they became. */
static bool has_files(const struct tsr_part_report *r)
{
	struct tsr_part_file f;
	uint64_t mark;

	for (const struct tsr_json *v = tsr_json_first(r->files); v; v = tsr_json_next(v)) {
		if (!take_file(v, &f) || !tsr_mark_find(f.path, f.nbytes, &mark) ||
		    (mark && mark != f.mark))
			return false;
	}
	return true;
}

/* --- Files -------------------------------------------------------------------------------------- */

char *tsr_part_report_path(const char *path, unsigned number, unsigned count)
{
	char *ret;

	return asprintf(&ret, "%s.part-%u-of-%u.json", path, number, count) < 0 ? NULL : ret;
}

/* The number of parts that the name of a report has: 0 if it is none of @stem. */
static unsigned count_in(const char *name, const char *stem)
{
	unsigned number, count;
	char *expected;
	bool same;

	if (strncmp(name, stem, strlen(stem)) != 0 ||
	    sscanf(name + strlen(stem), ".part-%u-of-%u.json", &number, &count) != 2)
		return 0;
	expected = tsr_part_report_path(stem, number, count);
	same = expected && strcmp(expected, name) == 0 && number >= 1 && number <= count &&
	       count <= TSR_PARTS_MAX;
	free(expected);
	return same ? count : 0;
}

/* How many parts there are, as the names say. */
static enum tsr_status count_parts(const char *path, unsigned *ret, struct tsr_err *err)
{
	char *dir = tsr_path_directory(path);
	struct tsr_dir list = { 0 };
	enum tsr_status status;

	*ret = 0;
	if (!dir)
		return tsr_fail_nomem(err, path);
	status = tsr_dir_list(dir, ".json", &list, err);
	free(dir);
	for (size_t i = 0; i < list.n && status == TSR_OK; i++) {
		const unsigned count = count_in(list.names[i], tsr_path_name(path));

		if (count && *ret && count != *ret)
			status = tsr_fail(err, TSR_E_FORMAT,
					  "%s: found parts of %u and of %u; remove those that "
					  "are not meant",
					  path, *ret, count);
		*ret = count ? count : *ret;
	}
	tsr_dir_free(&list);
	if (status == TSR_OK && !*ret)
		return tsr_fail(err, TSR_E_IO, "%s: found no parts: no file %s.part-*-of-*.json",
				path, path);
	return status;
}

static enum tsr_status read_one(const char *path, struct tsr_part_report *ret, struct tsr_err *err)
{
	struct tsr_file *f = NULL;
	enum tsr_status status;
	char *text = NULL;

	TSR_TRY(tsr_file_open(path, &f, err));
	status = tsr_file_load(f, REPORT_NBYTES_MAX, "report of a part", &text, err);
	if (status == TSR_OK)
		status = tsr_part_report_parse(path, text, (size_t)tsr_file_size(f), ret, err);
	free(text);
	tsr_file_close(f);
	return status;
}

/* TSR_E_IO with the parts that are not there. */
static enum tsr_status check_all_there(const char *path, unsigned count, struct tsr_err *err)
{
	unsigned missing = 0, first = 0;

	for (unsigned i = 1; i <= count; i++) {
		char *name = tsr_part_report_path(path, i, count);

		if (!name)
			return tsr_fail_nomem(err, path);
		if (!tsr_dir_has(name) && !missing++)
			first = i;
		free(name);
	}
	if (!missing)
		return TSR_OK;
	return tsr_fail(err, TSR_E_IO, "%s: found %u of %u parts: part %u%s missing", path,
			count - missing, count, first, missing > 1 ? " and others are" : " is");
}

static enum tsr_status read_all(const char *path, struct tsr_part_report *reports, unsigned n,
				struct tsr_err *err)
{
	for (unsigned i = 0; i < n; i++) {
		char *name = tsr_part_report_path(path, i + 1, n);
		enum tsr_status status;

		if (!name)
			return tsr_fail_nomem(err, path);
		status = read_one(name, &reports[i], err);
		free(name);
		TSR_TRY(status);
	}
	return TSR_OK;
}

enum tsr_status tsr_part_reports_find(const char *path, struct tsr_part_report **ret,
				      unsigned *n_ret, struct tsr_err *err)
{
	struct tsr_part_report *reports;
	enum tsr_status status;
	unsigned n;

	TSR_TRY(count_parts(path, &n, err));
	TSR_TRY(check_all_there(path, n, err));
	reports = calloc(n, sizeof(*reports));
	if (!reports)
		return tsr_fail_nomem(err, path);
	status = read_all(path, reports, n, err);
	if (status == TSR_OK) {
		*ret = reports;
		*n_ret = n;
		return TSR_OK;
	}
	for (unsigned i = 0; i < n; i++)
		tsr_part_report_free(&reports[i]);
	free(reports);
	return status;
}

static bool fits_request(const struct tsr_part_report *r, const struct tsr_part_request *request)
{
	const struct tsr_json *v = tsr_json_first(r->args);
	size_t i = 0;

	for (; v && i < request->nargs; v = tsr_json_next(v), i++) {
		if (strcmp(tsr_json_string(v), request->args[i]) != 0)
			return false;
	}
	return !v && i == request->nargs && strcmp(r->tool, TOOL) == 0 &&
	       strcmp(r->command, request->command) == 0 && strcmp(r->path, request->path) == 0 &&
	       r->number == request->number && r->count == request->count;
}

/* Whether what the part wrote beside its report is there. */
static bool has_data(const struct tsr_part_report *r)
{
	char *path = NULL;
	struct stat st;
	bool has;

	if (!r->data.nbytes)
		return true;
	if (asprintf(&path, "%s.part-%u-of-%u.data", r->path, r->number, r->count) < 0)
		return false;
	has = stat(path, &st) == 0 && (uint64_t)st.st_size == r->data.nbytes;
	free(path);
	return has;
}

enum tsr_status tsr_part_is_done(const struct tsr_part_request *request, bool *ret,
				 struct tsr_err *err)
{
	char *path = tsr_part_report_path(request->path, request->number, request->count);
	struct tsr_part_report r;
	struct tsr_err damaged;

	*ret = false;
	if (!path)
		return tsr_fail_nomem(err, request->path);
	/* One that is damaged is made anew, as is one without its data. */
	if (tsr_dir_has(path) && read_one(path, &r, &damaged) == TSR_OK) {
		*ret = fits_request(&r, request) && has_data(&r) && has_files(&r);
		tsr_part_report_free(&r);
	}
	free(path);
	return TSR_OK;
}
