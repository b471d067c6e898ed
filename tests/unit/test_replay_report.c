/* SPDX-License-Identifier: Apache-2.0 */
/* Replays made by hand: what reports and findings say, also of what is missing or infinite. */
#include <cjson/cJSON.h>

#include "replay/replay_result.h"
#include "text/json.h"
#include "report/charts/charts.h"
#include "replay/findings/replay_figures.h"
#include "report/reports.h"
#include "replay_make.h"

static void put_csv(const struct tsr_replay *r, struct tsr_text *csv)
{
	tsr_replay_put_csv_names("", csv);
	tsr_replay_put_csv(r, NULL, csv);
}

static void put_svg(const struct tsr_replay *r, struct tsr_text *svg)
{
	struct tsr_report report = { .wants_svg = true };

	tsr_replay_report(r, &report);
	*svg = report.svg;
}

static void put_html(const struct tsr_replay *r, struct tsr_text *html)
{
	struct tsr_report report = { .wants_html = true };

	tsr_replay_report(r, &report);
	*html = report.html;
}

static char *text_of(void (*put)(const struct tsr_replay *, struct tsr_text *),
		     const struct made *m)
{
	struct tsr_text text = { 0 };

	put(&m->replay, &text);
	assert_false(text.failed);
	assert_true(text.nbytes == strlen(text.bytes));
	return text.bytes;
}

static size_t count_of(const char *text, const char *what)
{
	size_t n = 0;

	for (const char *at = strstr(text, what); at; at = strstr(at + 1, what))
		n++;
	return n;
}

static void expect_text(const char *text, const char *what)
{
	if (!strstr(text, what))
		fail_msg("'%s' is not in: %.3000s", what, text);
}

/* --- JSON ------------------------------------------------------------------------------------- */

static void put_object(const struct tsr_replay *r, struct tsr_text *json)
{
	tsr_json_open(json, NULL, '{');
	tsr_replay_put_json(r, json);
	tsr_json_close(json, '}');
}

static cJSON *json_of(const struct made *m)
{
	char *text = text_of(put_object, m);
	cJSON *root = cJSON_Parse(text);

	assert_non_null(root);
	free(text);
	return root;
}

static const cJSON *get(const cJSON *object, const char *key)
{
	const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, key);

	if (!value)
		fail_msg("no member %s", key);
	return value;
}

static double number(const cJSON *object, const char *key)
{
	assert_true(cJSON_IsNumber(get(object, key)));
	return get(object, key)->valuedouble;
}

static void expect_member(const cJSON *object, const char *key, const char *want)
{
	assert_string_equal(cJSON_GetStringValue(get(object, key)), want);
}

/* Reports have 9 digits. */
static void expect_near(double got, double want)
{
	if (!(fabs(got - want) <= 1e-8 * fabs(want)))
		fail_msg("got %.17g, want %.17g", got, want);
}

static void test_json_of_what_is_missing(void **state)
{
	struct made *m = make_replay(3);
	const cJSON *steps, *tensor;
	cJSON *root;

	(void)state;
	make_skipped(m, 1);
	for (size_t s = 0; s < 3; s++) {
		m->steps[s].total.value[TSR_FIGURE_VARIANCE_NMSE] = NAN;
		for (size_t p = 0; p < MADE_PARAMS; p++)
			m->figures[s][p].value[TSR_FIGURE_VARIANCE_NMSE] = NAN;
	}
	m->figures[2][0].value[TSR_FIGURE_UPDATE_NMSE] = INFINITY;
	m->replay.coding[TSR_SLOT_VARIANCE].codec = NULL;
	m->steps[2].nmissing = 2;
	root = json_of(m);
	steps = get(root, "steps");
	tensor = cJSON_GetArrayItem(get(root, "tensors"), 0);
	assert_true(number(root, "skipped") == 1);
	assert_true(cJSON_IsTrue(get(cJSON_GetArrayItem(steps, 1), "skipped")));
	assert_null(cJSON_GetObjectItem(cJSON_GetArrayItem(steps, 1), "total"));
	assert_null(
		cJSON_GetObjectItem(get(cJSON_GetArrayItem(steps, 0), "total"), "variance-nmse"));
	assert_true(number(cJSON_GetArrayItem(steps, 2), "missing") == 2);
	assert_null(cJSON_GetObjectItem(get(root, "state"), "variance"));
	assert_null(cJSON_GetObjectItem(get(root, "worst"), "variance-nmse"));
	assert_null(cJSON_GetObjectItem(tensor, "variance-nmse"));
	assert_int_equal(cJSON_GetArraySize(get(tensor, "update-nmse")), 3);
	assert_true(cJSON_IsNumber(cJSON_GetArrayItem(get(tensor, "update-nmse"), 0)));
	assert_true(cJSON_IsNull(cJSON_GetArrayItem(get(tensor, "update-nmse"), 1)));
	assert_true(cJSON_IsNull(cJSON_GetArrayItem(get(tensor, "update-nmse"), 2)));
	assert_true(cJSON_IsNull(get(get(get(root, "worst"), "update-nmse"), "value")));
	cJSON_Delete(root);
	free(m);
}

static void test_json_of_a_failed_gate_and_warnings(void **state)
{
	struct made *m = make_replay(3);
	struct tsr_replay *r = &m->replay;
	cJSON *root;
	const cJSON *gate, *warning;

	(void)state;
	m->warning = (struct tsr_numerics_warning){ 402, 1, 12.5, 1e-9 };
	r->warnings = &m->warning;
	r->nwarnings = 1;
	r->gate_failed = true;
	r->failed = (struct tsr_gate){ TSR_FIGURE_WEIGHT_COSINE, 1e-9 };
	r->gate_step = 2;
	r->gate_param = 1;
	root = json_of(m);
	gate = get(root, "gate_failed");
	expect_member(gate, "figure", "weight-cosine");
	expect_member(gate, "tensor", "b.bias");
	assert_true(number(gate, "step") == 403);
	expect_near(number(gate, "limit"), 1e-9);
	expect_near(number(gate, "error"), 0x1p-19);
	warning = cJSON_GetArrayItem(get(root, "warnings"), 0);
	expect_member(warning, "tensor", "b.bias");
	assert_true(number(warning, "step") == 402);
	assert_true(number(warning, "largest") == 12.5);
	expect_near(number(warning, "lr"), 1e-9);
	cJSON_Delete(root);
	free(m);
}

static void test_json_without_a_comparison(void **state)
{
	struct made *m = make_replay(2);
	cJSON *root;

	(void)state;
	m->replay.compared = false;
	m->steps[0].tensors = m->steps[1].tensors = NULL;
	root = json_of(m);
	assert_null(cJSON_GetObjectItem(root, "worst"));
	assert_null(cJSON_GetObjectItem(root, "tensors"));
	assert_null(cJSON_GetObjectItem(cJSON_GetArrayItem(get(root, "steps"), 0), "total"));
	cJSON_Delete(root);
	free(m);
}

/* --- CSV -------------------------------------------------------------------------------------- */

static void test_csv_has_a_line_per_step_and_tensor(void **state)
{
	struct made *m = make_replay(3);
	char *csv, want[64];

	(void)state;
	make_skipped(m, 1);
	m->figures[2][1].value[TSR_FIGURE_MOMENTUM_NMSE] = INFINITY;
	m->figures[2][1].value[TSR_FIGURE_VARIANCE_NMSE] = NAN;
	csv = text_of(put_csv, m);
	assert_int_equal(count_of(csv, "\n"), 1 + 2 * (MADE_PARAMS + 1));
	assert_true(strncmp(csv, "step,tensor,weight-ulp,weight-nmse,", 35) == 0);
	assert_int_equal(count_of(csv, "\n402,"), 0);
	/* What RFC 4180 wants around commas, with quotes doubled; no control characters. */
	expect_text(csv, "\n401,\"c,\"\"d\"\"<e>&\\x1b\",");
	snprintf(want, sizeof(want), "\n401,*,%.9g,", m->steps[0].total.value[0]);
	expect_text(csv, want);
	assert_non_null(strstr(strstr(csv, "\n403,b.bias,"), ",inf,,"));
	free(csv);
	free(m);
}

/* --- Figures ---------------------------------------------------------------------------------- */

static void test_numbers_are_found_in_the_source(void **state)
{
	struct made *m = make_replay(1);

	(void)state;
	assert_int_equal(tsr_replay_numel(&m->replay, 0), 1000);
	assert_int_equal(tsr_replay_numel(&m->replay, SIZE_MAX), 1097);
	/* 32, 2 and 2 groups, in momentum and in variance. */
	assert_int_equal(tsr_replay_ngroups(&m->replay, SIZE_MAX), 72);
	m->replay.coding[TSR_SLOT_VARIANCE] = tsr_coding_default(tsr_codec_find("f32"));
	assert_int_equal(tsr_replay_ngroups(&m->replay, SIZE_MAX), 36);
	free(m);
}

static void test_a_sample_has_the_ends_and_is_even(void **state)
{
	static const size_t lengths[] = { 1, 2, 19, 20, 21, 22, 39, 40, 100, 9999, 10000 };
	struct tsr_replay r = { .nsteps = 0 };

	(void)state;
	for (size_t i = 0; i < COUNT_OF(lengths); i++) {
		size_t shown = 0, last = 0, widest = 0;

		r.nsteps = lengths[i];
		for (size_t s = 0; s < r.nsteps; s++) {
			if (!tsr_replay_in_sample(&r, s, 20))
				continue;
			widest = s - last > widest ? s - last : widest;
			last = s;
			shown++;
		}
		assert_int_equal(shown, r.nsteps < 20 ? r.nsteps : 20);
		assert_true(tsr_replay_in_sample(&r, 0, 20));
		assert_true(tsr_replay_in_sample(&r, r.nsteps - 1, 20));
		assert_true(widest <= (r.nsteps - 1 + 18) / 19);
	}
}

/* --- Curves ----------------------------------------------------------------------------------- */

static const struct tsr_curve *curve_of(const struct tsr_curves *c, enum tsr_figure_name figure)
{
	for (unsigned i = 0; i < c->n; i++) {
		if (c->curve[i].kind->figure == figure)
			return &c->curve[i];
	}
	return NULL;
}

static void test_curves_are_totals_and_worst_tensors(void **state)
{
	struct made *m = make_replay(7);
	struct tsr_curves c;
	const struct tsr_curve *nmse, *stalled;

	(void)state;
	make_skipped(m, 3);
	assert_true(tsr_curves_find(&c, &m->replay));
	assert_null(curve_of(&c, TSR_FIGURE_UNDERFLOW)); /* all are 0 */
	nmse = curve_of(&c, TSR_FIGURE_MOMENTUM_NMSE);
	stalled = curve_of(&c, TSR_FIGURE_STALLED);
	for (size_t s = 0; s < 7; s++) {
		const struct tsr_replay_figures *f = m->figures[s];
		size_t worst = 0;

		if (s == 3) {
			assert_true(isnan(nmse->total[s]) && isnan(nmse->worst[s]));
			continue;
		}
		for (size_t p = 1; p < MADE_PARAMS; p++) {
			if (f[p].value[TSR_FIGURE_MOMENTUM_NMSE] >
			    f[worst].value[TSR_FIGURE_MOMENTUM_NMSE])
				worst = p;
		}
		assert_true(nmse->total[s] == m->steps[s].total.value[TSR_FIGURE_MOMENTUM_NMSE]);
		assert_true(nmse->worst[s] == f[worst].value[TSR_FIGURE_MOMENTUM_NMSE]);
		assert_int_equal(nmse->tensor[s], worst);
		/* 3 of all 1097; 0 of 1000, 1 of 64 and 2 of 33. */
		expect_near(stalled->total[s], 100.0 * 3 / 1097);
		expect_near(stalled->worst[s], 100.0 * 2 / 33);
		assert_int_equal(stalled->tensor[s], 2);
	}
	tsr_curves_free(&c);
	free(m);
}

static void test_curves_are_drawn(void **state)
{
	static const size_t lengths[] = { 0, 1, 2, 41, 3000 };

	(void)state;
	for (size_t i = 0; i < COUNT_OF(lengths); i++) {
		struct made *m = make_replay(lengths[i]);
		char *svg, *html;

		if (lengths[i] > 1)
			m->figures[1][0].value[TSR_FIGURE_VARIANCE_NMSE] = INFINITY;
		svg = text_of(put_svg, m);
		html = text_of(put_html, m);
		assert_int_equal(count_of(svg, "class=\"panel\""), lengths[i] ? 7 : 0);
		assert_int_equal(count_of(html, "class=\"panel\""), lengths[i] ? 14 : 0);
		assert_int_equal(count_of(svg, "\xe2\x88\x9e"), lengths[i] > 1 ? 1 : 0);
		assert_null(strstr(svg, "nan"));
		assert_null(strstr(svg, "inf"));
		assert_true(strlen(svg) < 300000); /* extremes of each pixel, not every step */
		expect_text(html, "</html>");
		/* Nothing that a name holds is markup. */
		assert_null(strstr(html, "<e>"));
		assert_null(strchr(html, '\x1b'));
		free(svg);
		free(html);
		free(m);
	}
}

/* The heights between which a path lies, and its points. */
static size_t heights_of(const char *path, double *highest, double *lowest)
{
	size_t n = 0;

	*highest = INFINITY;
	*lowest = -INFINITY;
	for (const char *at = path; *at != '"'; at++) {
		char *end;
		double y;

		if (*at != 'M' && *at != 'L')
			continue;
		strtod(at + 1, &end);
		y = strtod(end, NULL);
		*highest = fmin(*highest, y);
		*lowest = fmax(*lowest, y);
		n++;
	}
	return n;
}

static double attribute(const char *text, const char *name)
{
	const char *at = strstr(text, name);

	assert_non_null(at);
	return strtod(at + strlen(name), NULL);
}

/* Three steps of 3,000 stand out, each in the middle of a pixel. */
static void test_many_steps_keep_their_extremes(void **state)
{
	struct made *m = make_replay(3000);
	const char *panel, *path;
	double highest, lowest;
	char *svg;

	(void)state;
	for (size_t s = 0; s < 3000; s++)
		m->steps[s].total.value[TSR_FIGURE_MOMENTUM_NMSE] = s == 1251	? 1
								    : s == 1751 ? 1e-6
								    : s == 2750 ? 0
										: 1e-3;
	svg = text_of(put_svg, m);
	panel = strstr(svg, "class=\"panel\"");
	path = strstr(strstr(panel, "class=\"all\""), " d=\"") + 4;
	assert_true(heights_of(path, &highest, &lowest) < 1000);
	assert_true(highest == attribute(panel, "data-top=\""));
	/* 0 has a line of its own below the least decade, 6 pixels above the axis. */
	assert_true(lowest == attribute(panel, "data-bottom=\"") - 6);
	free(svg);
	m->steps[2750].total.value[TSR_FIGURE_MOMENTUM_NMSE] = 1e-3;
	svg = text_of(put_svg, m);
	panel = strstr(svg, "class=\"panel\"");
	path = strstr(strstr(panel, "class=\"all\""), " d=\"") + 4;
	heights_of(path, &highest, &lowest);
	assert_true(lowest == attribute(panel, "data-bottom=\"") - 6); /* 1e-6, the bottom */
	free(svg);
	free(m);
}

/* --- Findings --------------------------------------------------------------------------------- */

static void set_update(struct made *m, double total, double first)
{
	for (size_t s = 0; s < m->replay.nsteps; s++) {
		m->steps[s].total.value[TSR_FIGURE_UPDATE_NMSE] = total;
		for (size_t p = 0; p < MADE_PARAMS; p++)
			m->figures[s][p].value[TSR_FIGURE_UPDATE_NMSE] = total;
	}
	m->figures[m->replay.nsteps - 1][0].value[TSR_FIGURE_UPDATE_NMSE] = first;
}

static void expect_finding(const struct made *m, unsigned index, enum tsr_finding_level level,
			   const char *text)
{
	struct tsr_findings f;

	tsr_replay_find(&m->replay, &f);
	assert_true(index < f.n);
	expect_text(f.item[index].text, text);
	assert_int_equal(f.item[index].level, level);
}

static void test_findings_about_updates(void **state)
{
	struct made *m = make_replay(4);

	(void)state;
	set_update(m, 1e-6, 2.5e-5);
	expect_finding(m, 0, TSR_FINDING_FINE, "within 0.5% of its length");
	set_update(m, 1e-6, 0.0049);
	expect_finding(m, 0, TSR_FINDING_WATCH, "Updates of 1 of 3 tensors are more than 3.2% of");
	expect_finding(m, 0, TSR_FINDING_WATCH, "a.weight at step 404: 7%");
	set_update(m, 1e-6, 0.0144);
	expect_finding(m, 0, TSR_FINDING_BAD, "Updates of 1 of 3 tensors are more than 10% of");
	expect_finding(m, 0, TSR_FINDING_BAD, "a.weight at step 404: 12%");
	set_update(m, 1e-6, 1);
	expect_finding(m, 0, TSR_FINDING_BAD,
		       "diverged from FP32 in 1 of 3 tensors, first at step 404");
	set_update(m, 1e-6, INFINITY);
	expect_finding(m, 0, TSR_FINDING_BAD, "update-nmse of a.weight is infinite from step 404");
	free(m);
}

static void test_findings_about_lost_variances(void **state)
{
	struct made *m = make_replay(4);
	struct tsr_findings f;

	(void)state;
	m->replay.coding[TSR_SLOT_VARIANCE] = tsr_coding_default(tsr_codec_find("ulinear8"));
	m->steps[2].total.value[TSR_FIGURE_VARIANCE_LOST] = 109.7;
	m->figures[2][0].value[TSR_FIGURE_VARIANCE_LOST] = 105;
	set_update(m, 1e-6, 1e-5);
	tsr_replay_find(&m->replay, &f);
	assert_int_equal(f.n, 1); /* it did no harm */
	set_update(m, 1e-6, 20);
	expect_finding(m, 1, TSR_FINDING_BAD,
		       "ulinear8 stores variances as 0 that are not: 10% of");
	expect_finding(m, 1, TSR_FINDING_BAD, "at step 403, at most 10.5% of a.weight");
	expect_finding(m, 1, TSR_FINDING_BAD, "(sqrt8)");
	set_update(m, 1e-6, 0.02);
	expect_finding(m, 1, TSR_FINDING_WATCH, "ulinear8");
	/* Another tensor loses more, but it is this one whose updates suffer. */
	m->figures[2][1].value[TSR_FIGURE_VARIANCE_LOST] = 64;
	expect_finding(m, 1, TSR_FINDING_WATCH, "at most 10.5% of a.weight");
	m->figures[2][0].value[TSR_FIGURE_VARIANCE_LOST] = 0;
	tsr_replay_find(&m->replay, &f);
	assert_int_equal(f.n, 1); /* something else is wrong with it */
	free(m);
}

static void test_findings_about_scales_and_stalls(void **state)
{
	struct made *m = make_replay(4);
	struct tsr_findings f;

	(void)state;
	set_update(m, 1e-6, 1e-5);
	m->steps[1].total.value[TSR_FIGURE_UNDERFLOW] = 9;
	m->figures[1][0].value[TSR_FIGURE_UNDERFLOW] = 8;
	m->figures[1][2].value[TSR_FIGURE_UNDERFLOW] = 1;
	expect_finding(m, 0, TSR_FINDING_BAD, "at step 402 9 of 72 groups (12.5%)");
	expect_finding(m, 0, TSR_FINDING_BAD, "a.weight: 8 of 64 (12.5%) at step 402");
	expect_finding(m, 0, TSR_FINDING_BAD, "in 2 of 3 tensors");
	m->steps[3].total.value[TSR_FIGURE_STALLED] = 109;
	tsr_replay_find(&m->replay, &f);
	assert_int_equal(f.n, 2);
	m->steps[3].total.value[TSR_FIGURE_STALLED] = 548.5;
	expect_finding(m, 1, TSR_FINDING_WATCH, "50% of them are stalled at step 404");
	m->steps[3].total.value[TSR_FIGURE_STALLED] = 0;
	m->figures[1][2].value[TSR_FIGURE_UPDATE_QUANT] = 1;
	expect_finding(m, 1, TSR_FINDING_WATCH, "100% of its length (update-quant 1 at step 402)");
	expect_finding(m, 2, TSR_FINDING_FINE, "within");
	m->replay.compared = false;
	tsr_replay_find(&m->replay, &f);
	assert_int_equal(f.n, 0);
	free(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_json_of_what_is_missing),
		cmocka_unit_test(test_json_of_a_failed_gate_and_warnings),
		cmocka_unit_test(test_json_without_a_comparison),
		cmocka_unit_test(test_csv_has_a_line_per_step_and_tensor),
		cmocka_unit_test(test_numbers_are_found_in_the_source),
		cmocka_unit_test(test_a_sample_has_the_ends_and_is_even),
		cmocka_unit_test(test_curves_are_totals_and_worst_tensors),
		cmocka_unit_test(test_curves_are_drawn),
		cmocka_unit_test(test_many_steps_keep_their_extremes),
		cmocka_unit_test(test_findings_about_updates),
		cmocka_unit_test(test_findings_about_lost_variances),
		cmocka_unit_test(test_findings_about_scales_and_stalls),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
