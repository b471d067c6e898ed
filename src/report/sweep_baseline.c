/* SPDX-License-Identifier: Apache-2.0 */
/* Earlier reports of sweeps: read back and compared with. */
#include "report/sweep_baseline.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "io/file.h"
#include "report/sweep_figures.h"
#include "report/sweep_report.h"
#include "text/json.h"

/* A report of every codec is 4 MB. */
#define NBYTES_MAX (UINT64_C(64) << 20)
#define VALUES_MAX 4000000u

/* --- Reading ---------------------------------------------------------------------------------- */

struct loading {
	const char *path;
	struct tsr_sweep *sweep;
	struct tsr_err *err;
};

static enum tsr_status bad(const struct loading *l, const char *what)
{
	return tsr_fail(l->err, TSR_E_FORMAT, "%s: report of a sweep: found %s", l->path, what);
}

static bool read_sum(const struct tsr_json *v, uint64_t sum[2])
{
	const char *digits = tsr_json_string(v);
	const size_t n = digits ? strlen(digits) : 0;
	char high[17];

	if (n < 1 || n > 32 || strspn(digits, "0123456789abcdef") != n)
		return false;
	sum[0] = strtoull(n > 16 ? digits + n - 16 : digits, NULL, 16);
	snprintf(high, sizeof(high), "%.*s", n > 16 ? (int)(n - 16) : 0, digits);
	sum[1] = n > 16 ? strtoull(high, NULL, 16) : 0;
	return true;
}

static bool read_row(const struct tsr_json *v, struct tsr_sweep_row *row)
{
	const struct tsr_json *max_rel = tsr_json_get(v, "max_rel");
	double max = 0;
	uint64_t ulp;

	*row = (struct tsr_sweep_row){ 0 };
	for (unsigned i = 0; i < TSR_SWEEP_COUNTS; i++) {
		if (!tsr_json_u64(tsr_json_get(v, tsr_sweep_count_name(i)),
				  tsr_sweep_count(row, i)))
			return false;
	}
	if (!read_sum(tsr_json_get(v, "rel_sum"), row->rel_sum) ||
	    !tsr_json_u64(tsr_json_get(v, "max_ulp"), &ulp) || ulp > UINT32_MAX)
		return false;
	if (max_rel && tsr_json_type(max_rel) == TSR_JSON_NULL)
		max = INFINITY;
	else if (!tsr_json_double(max_rel, &max) || max < 0)
		return false;
	row->max_ulp = (uint32_t)ulp;
	row->max_rel = (float)max;
	return row->exact <= row->count && row->overflow <= row->count &&
	       row->nan_in <= row->count && row->nan_out <= row->count &&
	       row->compared <= row->count;
}

/* How many patterns of the range have this exponent field. */
static uint64_t patterns_of(const struct tsr_sweep *s, unsigned exponent)
{
	uint64_t n = 0;

	for (uint64_t sign = 0; sign < 2; sign++) {
		const uint64_t from = sign << 31 | (uint64_t)exponent << 23;
		const uint64_t to = from + (1u << 23) - 1;
		const uint64_t first = from > s->first ? from : s->first;
		const uint64_t last = to < s->last ? to : s->last;

		n += first <= last ? last - first + 1 : 0;
	}
	return n;
}

static enum tsr_status read_result(struct loading *l, const struct tsr_json *v)
{
	struct tsr_sweep_result *r = &l->sweep->results[l->sweep->ncodecs];
	const char *name = tsr_json_string(tsr_json_get(v, "codec"));
	const struct tsr_json *rows = tsr_json_get(v, "exponents");
	struct tsr_sweep_row finite, sum;
	uint64_t exponent, next = 0;

	if (!name || !rows || tsr_json_type(rows) != TSR_JSON_ARRAY)
		return bad(l, "a codec without name or exponents");
	for (rows = tsr_json_first(rows); rows; rows = tsr_json_next(rows)) {
		if (!tsr_json_u64(tsr_json_get(rows, "exponent"), &exponent) || exponent < next ||
		    exponent >= TSR_SWEEP_ROWS || !read_row(rows, &r->rows[exponent]))
			return bad(l, "an exponent with missing or impossible figures");
		next = exponent + 1;
	}
	for (unsigned i = 0; i < TSR_SWEEP_ROWS; i++) {
		if (r->rows[i].count != patterns_of(l->sweep, i))
			return bad(l, "counts that are not those of its range");
	}
	sum = tsr_sweep_finite(r);
	if (!read_row(tsr_json_get(v, "finite"), &finite) || !tsr_sweep_row_equal(&finite, &sum))
		return bad(l, "totals that are not the sum of the exponents");
	r->codec = tsr_codec_find(name);
	if (!r->codec)
		*r = (struct tsr_sweep_result){ 0 };
	else if (tsr_sweep_find(l->sweep, name))
		return bad(l, "a codec twice");
	else
		l->sweep->ncodecs++;
	return TSR_OK;
}

static enum tsr_status read_root(struct loading *l, const struct tsr_json *root)
{
	const char *schema = tsr_json_string(tsr_json_get(root, "schema"));
	const struct tsr_json *codecs = tsr_json_get(root, "codecs");
	uint64_t first, last, n = 0;

	if (!schema)
		return tsr_fail(l->err, TSR_E_FORMAT,
				"%s: found no schema, expected a report with " TSR_SWEEP_SCHEMA,
				l->path);
	if (strcmp(schema, TSR_SWEEP_SCHEMA) != 0)
		return tsr_fail(l->err, TSR_E_UNSUPPORTED,
				"%s: found schema %.60s, expected " TSR_SWEEP_SCHEMA, l->path,
				schema);
	if (!tsr_json_u64(tsr_json_get(root, "first"), &first) ||
	    !tsr_json_u64(tsr_json_get(root, "last"), &last) || first > last || last > UINT32_MAX)
		return bad(l, "no range");
	if (!codecs || tsr_json_type(codecs) != TSR_JSON_ARRAY)
		return bad(l, "no codecs");
	for (const struct tsr_json *v = tsr_json_first(codecs); v; v = tsr_json_next(v))
		n++;
	*l->sweep = (struct tsr_sweep){ .first = (uint32_t)first, .last = (uint32_t)last };
	l->sweep->results = calloc(n + 1, sizeof(*l->sweep->results));
	if (!l->sweep->results)
		return tsr_fail_nomem(l->err, l->path);
	for (const struct tsr_json *v = tsr_json_first(codecs); v; v = tsr_json_next(v))
		TSR_TRY(read_result(l, v));
	return TSR_OK;
}

enum tsr_status tsr_sweep_load(const char *path, struct tsr_sweep **ret, struct tsr_err *err)
{
	const struct tsr_json_rules rules = {
		.file = path, .part = "report of a sweep", .max_depth = 8, .max_values = VALUES_MAX
	};
	struct loading l = { .path = path, .err = err };
	struct tsr_json *root = NULL;
	struct tsr_file *f;
	enum tsr_status status;

	TSR_TRY(tsr_file_open(path, &f, err));
	status = tsr_json_read_file(f, NBYTES_MAX, &rules, &root, err);
	tsr_file_close(f);
	TSR_TRY(status);
	l.sweep = calloc(1, sizeof(*l.sweep));
	status = l.sweep ? read_root(&l, root) : tsr_fail_nomem(err, path);
	tsr_json_free(root);
	if (status != TSR_OK) {
		tsr_sweep_free(l.sweep);
		return status;
	}
	*ret = l.sweep;
	return TSR_OK;
}
