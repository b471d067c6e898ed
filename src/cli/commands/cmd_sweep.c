/* SPDX-License-Identifier: Apache-2.0 */
/* tersor sweep: every FP32 bit pattern through weight codecs. */
#include <fnmatch.h>

#include "cli/words.h"
#include "cli/operations.h"
#include "cli/files.h"
#include "cli/parts/parting.h"
#include "report/reports.h"
#include "sweep/sweep_parts.h"

struct args {
	struct cli_common common;
	struct cli_list codec;
	uint64_t first, last;
	const char *baseline;
	struct tsr_results_plan plan; /* of a library */
	uint64_t max_ulp;
};

#define AT(field) offsetof(struct args, field)

static const struct cli_opt opts[] = {
	CLI_OPT("codec", "LIST", CLI_LIST, codec, "@weight"),
	CLI_OPT_NUMBER("first", "BITS", first, 0, UINT32_MAX),
	CLI_OPT_NUMBER("last", "BITS", last, 0, UINT32_MAX),
	CLI_OPT("baseline", "FILE", CLI_STRING, baseline, "@file"),
	CLI_OPT("library", "FILE", CLI_STRING, plan.library, "@file", .needs = "symbol",
		.excludes = "svg"),
	CLI_OPT("symbol", "NAME", CLI_STRING, plan.symbol, NULL, .needs = "library"),
	CLI_OPT("out", "TYPE", CLI_WORD, plan.out_name, "f32 bf16 f16 u8", .needs = "library"),
	CLI_OPT("against-symbol", "NAME", CLI_STRING, plan.against, NULL, .needs = "library",
		.excludes = "codec"),
	CLI_OPT_NUMBER("max-ulp", "N", max_ulp, 0, UINT32_MAX, .needs = "library"),
	CLI_OPT_NUMBER("timeout", "SECONDS", plan.timeout_s, 1, 86400, .needs = "library"),
	{ 0 }
};

/* --- What to sweep ---------------------------------------------------------------------------- */

#define CODECS_MAX 256

struct choice {
	const struct tsr_codec *codecs[CODECS_MAX]; /* in the order of the table */
	unsigned n;
	uint32_t first, last;
};

static bool is_weight(const struct tsr_codec *c)
{
	return (c->kinds & TSR_KIND_WEIGHT) && !c->grouped;
}

/* Mark the codecs that one name or pattern stands for. */
static int choose_word(const struct cli_cmd *cmd, const char *word, bool *chosen)
{
	const bool pattern = strpbrk(word, "*?[") != NULL;
	const struct tsr_codec *codec;
	bool found = false;

	if (!pattern)
		CLI_TRY(cli_parse_codec(cmd, word, TSR_KIND_WEIGHT, &codec));
	for (unsigned i = 0; tsr_codecs()[i]; i++) {
		const struct tsr_codec *c = tsr_codecs()[i];

		if (!is_weight(c) ||
		    (pattern ? fnmatch(word, c->name, 0) != 0 : strcmp(word, c->name) != 0))
			continue;
		chosen[i] = found = true;
	}
	if (!found)
		return cli_usage(cmd, "no weight codec matches '%s'; 'tersor codecs' lists them",
				 word);
	return CLI_OK;
}

static int parse_choice(const struct cli_cmd *cmd, const struct args *a, struct choice *c)
{
	const struct cli_list *lists = &a->codec;
	bool chosen[CODECS_MAX] = { false };
	char word[CLI_WORD_NBYTES];

	for (unsigned i = 0; i < lists->n; i++) {
		for (const char *list = lists->items[i]; cli_next_word(&list, word);)
			CLI_TRY(choose_word(cmd, word, chosen));
	}
	for (unsigned i = 0; tsr_codecs()[i]; i++) {
		if (lists->n ? chosen[i] : is_weight(tsr_codecs()[i]))
			c->codecs[c->n++] = tsr_codecs()[i];
	}
	c->first = (uint32_t)a->first;
	c->last = cli_given(&a->common, "last") ? (uint32_t)a->last : UINT32_MAX;
	if (c->first > c->last)
		return cli_usage(cmd, "--first 0x%08x is after --last 0x%08x", c->first, c->last);
	return CLI_OK;
}

/* Before the sweep: everything that can be known to fail.  @codecs: it has to have those. */
static int check_baseline(const struct tsr_json *was, const char *path, const struct choice *c,
			  bool codecs)
{
	uint64_t first, last;

	if (!tsr_json_u64(tsr_json_get(was, "first"), &first) ||
	    !tsr_json_u64(tsr_json_get(was, "last"), &last))
		return cli_fail(CLI_INPUT, "%s: found no range", path);
	if (first != c->first || last != c->last)
		return cli_fail(CLI_INPUT,
				"%s: found a sweep of 0x%08" PRIx64 " to 0x%08" PRIx64
				", expected 0x%08x to 0x%08x",
				path, first, last, c->first, c->last);
	for (unsigned i = 0; i < c->n && codecs; i++) {
		if (!tsr_baseline_find(tsr_json_get(was, tsr_sweep_baseline.list),
				       c->codecs[i]->name))
			return cli_fail(CLI_INPUT, "%s: found no codec %s", path,
					c->codecs[i]->name);
	}
	return CLI_OK;
}

/* --- Reports ---------------------------------------------------------------------------------- */

static int report(const struct cli_cmd *cmd, const struct args *a, const struct tsr_sweep *s,
		  const struct tsr_json *baseline)
{
	struct tsr_report r = cli_report(cmd, &a->common, NULL);

	r.wants_json = r.wants_json || baseline;
	tsr_sweep_report(s, &r);
	r.wants_json = a->common.report[CLI_JSON].given;
	if (baseline)
		tsr_baseline_report(&tsr_sweep_baseline, baseline, &r);
	return cli_end_report(&r, &a->common);
}

/* Patterns times codecs from which a GPU is faster, although it takes a while to start. */
#define WORTH_A_GPU (UINT64_C(1) << 31)

static int sweep(const struct cli_cmd *cmd, const struct args *a, const struct choice *c,
		 const struct tsr_json *baseline)
{
	const bool large = (c->last - c->first) * (uint64_t)c->n >= WORTH_A_GPU;
	const char *asked = a->common.device;
	struct tsr_sweep_plan plan = {
		.codecs = c->codecs, .ncodecs = c->n, .first = c->first, .last = c->last
	};
	TSR_OWNED(tsr_sweep_free) struct tsr_sweep *s = NULL;
	struct cli_device device;
	struct cli_work work;

	CLI_TRY(cli_choose_device(cmd, asked && strcmp(asked, "cuda") == 0 ? "cuda:all" : asked,
				  large, &device));
	cli_say_device(&a->common, "sweeping", &device);
	cli_work_start(&work, &a->common, "sweeping");
	plan.gpus = device.gpus;
	plan.ngpus = device.ngpus;
	if (cli_work_end(&work, tsr_sweep_in_parts(&plan, &work.run, &s, &work.err)) != TSR_OK)
		return cli_error(&work.err);
	return report(cmd, a, s, baseline);
}

static int run(const struct cli_cmd *cmd, void *args)
{
	struct args *a = args;
	const struct tsr_baseline *kind = a->plan.library ? &tsr_results_baseline
							  : &tsr_sweep_baseline;
	TSR_OWNED(tsr_json_free) struct tsr_json *baseline = NULL;
	struct choice c = { .n = 0 };
	struct tsr_err err = { 0 };

	CLI_TRY(parse_choice(cmd, a, &c));
	if (a->plan.library && a->codec.n && c.n != 1)
		return cli_usage(cmd, "--library is compared with one codec");
	if (a->plan.library)
		CLI_TRY(cli_part_refuse(cmd, "--library"));
	CLI_TRY(cli_check_reports(&a->common));
	if (a->baseline && tsr_baseline_load(kind, a->baseline, &baseline, &err) != TSR_OK)
		return cli_error(&err);
	if (baseline)
		CLI_TRY(check_baseline(baseline, a->baseline, &c, !a->plan.library));
	if (!a->plan.library)
		return sweep(cmd, a, &c, baseline);
	a->plan.codec = a->codec.n ? c.codecs[0] : NULL;
	a->plan.first = c.first;
	a->plan.last = c.last;
	return cli_sweep_library(cmd, &a->common, &a->plan,
				 cli_given(&a->common, "max-ulp") ? a->max_ulp : UINT64_MAX,
				 baseline);
}

TSR_EMBED(help_sweep, "man/help/sweep.txt");

const struct cli_cmd cmd_sweep = {
	.name = "sweep",
	.summary = "run every FP32 bit pattern through weight codecs",
	.operands = "",
	.help = help_sweep,
	.opts = opts,
	.takes = CLI_PARTS | CLI_DRAWS | CLI_COMPUTES | CLI_WORKS | CLI_REPORTS,
	.args_nbytes = sizeof(struct args),
	.run = run,
};
