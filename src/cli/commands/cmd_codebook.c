/* SPDX-License-Identifier: Apache-2.0 */
/* tersor codebook: the blocks and the codebook that Gefen's state would have. */
#include <inttypes.h>
#include <stdio.h>

#include "report/charts/codebook_chart.h"
#include "cli/coding.h"
#include "cli/input.h"
#include "cli/output.h"
#include "cli/work.h"
#include "report/format.h"
#include "tersor/recording.h"
#include "text/json.h"

struct args {
	struct cli_common common;
	struct cli_learning learning;
	bool gradients;
};

#define AT(field) offsetof(struct args, field)

static const struct cli_opt opts[] = {
	CLI_OPT("partition", "RULE", CLI_WORD, learning.partition, CLI_PARTITION_RULES,
		CLI_PARTITION_HELP),
	CLI_OPT("compat", "NAME", CLI_WORD, learning.compat, "gefen",
		"gefen: leave the codebook as its program has it, without a 0"),
	CLI_OPT_FLAG("few-bins", learning.few, CLI_FEW_HELP),
	CLI_OPT_FLAG("gradients", gradients,
		     "the tensors of IN are gradients of a first step, as in a recording"),
	CLI_OPT("svg", "FILE", CLI_STRING, common.svg, "@report",
		"draw histogram and codebook into FILE"),
	{ 0 }
};

static uint64_t total_count(const struct tsr_learned *l)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < TSR_LEARNED_BINS; i++)
		sum += l->count[i];
	return sum;
}

/* Of both moments, per parameter. */
static double bytes_of(const struct tsr_learned_tensor *t)
{
	return 1 + 4.0 / t->block + 4.0 / t->period;
}

static const struct tsr_column columns[] = {
	{ "name", "parameter", .as = TSR_NAME },
	{ "elements", "elements", .as = TSR_COUNT },
	{ "period", "period" },
	{ "block", "block" },
	{ "counted", "counted" },
};

static void report_people(const struct args *a, const struct tsr_learned *l, struct tsr_report *r)
{
	struct tsr_table t = TSR_TABLE(columns);
	double bytes = 0, elements = 0;

	for (size_t i = 0; i < l->ntensors; i++) {
		const struct tsr_learned_tensor *x = &l->tensors[i];

		TSR_ROW(&t, tsr_str(x->name), tsr_u64(x->numel), tsr_u64(x->period),
			tsr_u64(x->block), tsr_bool(x->counted));
		bytes += bytes_of(x) * (double)x->numel;
		elements += (double)x->numel;
	}
	tsr_report_table(r, &t, &(struct tsr_view){ 0 }, NULL);
	tsr_table_free(&t);
	tsr_report_gap(r);
	tsr_report_say(r, TSR_TO_TEXT,
		       "%d entries learned from %s values in %u of %d bins, NMSE %.4e",
		       TSR_CODEBOOK_ENTRIES, tsr_format_count(total_count(l)).text, l->nonempty,
		       TSR_LEARNED_BINS, l->nmse);
	tsr_report_say(r, TSR_TO_TEXT, "%.4g bytes per parameter for both moments",
		       bytes / elements);
	for (unsigned i = 0; a->common.verbose && i < TSR_CODEBOOK_ENTRIES; i++)
		tsr_text_printf(&r->text, "%s%13.9g%s", i == 0 ? "\n" : "", (double)l->codebook[i],
				i % 6 == 5 || i == TSR_CODEBOOK_ENTRIES - 1 ? "\n" : "");
}

static const struct tsr_column candidate_columns[] = { { "length" }, { "score" } };

static void put_tensor(struct tsr_text *json, const struct tsr_learned_tensor *t)
{
	struct tsr_table candidates = TSR_TABLE(candidate_columns);

	for (size_t i = 0; i < t->ncandidates; i++)
		TSR_ROW(&candidates, tsr_u64(t->candidates[i].length),
			tsr_num(t->candidates[i].score));
	tsr_json_open(json, NULL, '{');
	tsr_json_put_string(json, "name", t->name);
	tsr_json_put_u64(json, "elements", t->numel);
	tsr_json_put_u64(json, "period", t->period);
	tsr_json_put_u64(json, "block", t->block);
	tsr_json_put_bool(json, "counted", t->counted);
	tsr_table_put_json(&candidates, "candidates", json);
	tsr_json_close(json, '}');
	tsr_table_free(&candidates);
}

static void put_json(const struct args *a, const struct tsr_learned *l, struct tsr_text *json)
{
	double entries[TSR_CODEBOOK_ENTRIES];

	for (unsigned i = 0; i < TSR_CODEBOOK_ENTRIES; i++)
		entries[i] = (double)l->codebook[i];
	cli_json_inputs(json, &a->common);
	tsr_json_put_string(json, "partition",
			    a->learning.partition ? a->learning.partition : "adjacent");
	tsr_json_open(json, "tensors", '[');
	for (size_t i = 0; i < l->ntensors; i++)
		put_tensor(json, &l->tensors[i]);
	tsr_json_close(json, ']');
	tsr_json_put_u64s(json, "counts", l->count, TSR_LEARNED_BINS);
	tsr_json_put_u64(json, "nonempty", l->nonempty);
	tsr_json_put_doubles(json, "codebook", entries, TSR_CODEBOOK_ENTRIES);
	tsr_json_put_double(json, "nmse", l->nmse);
}

static int report(const struct cli_cmd *cmd, const struct args *a, const struct tsr_learned *l)
{
	struct tsr_report r = cli_report(cmd, &a->common, NULL);

	report_people(a, l, &r);
	if (r.wants_svg)
		tsr_codebook_put_svg(l, &r.svg);
	if (r.wants_json)
		put_json(a, l, &r.json);
	return cli_end_report(&r, &a->common);
}

static int run(const struct cli_cmd *cmd, void *args)
{
	const struct args *a = args;
	const struct cli_list *in = &a->common.operands;
	struct tsr_learned *l = NULL;
	struct cli_work work;
	int status;

	CLI_TRY(cli_check_reports(cmd, &a->common));
	cli_work_start(&work, &a->common, "learning");
	status = cli_learn(&a->learning, in, in->n == 1 && tsr_recording_probe(in->items[0]),
			   a->gradients, &a->common.open, &work.run, &l);
	cli_work_end(&work);
	if (status == CLI_OK)
		status = report(cmd, a, l);
	tsr_learned_free(l);
	return status;
}

const struct cli_cmd cmd_codebook = {
	.name = "codebook",
	.summary = "learn Gefen's blocks and codebook from a recording or a checkpoint",
	.operands = "IN...",
	.details =
		"Learns what Gefen stores momenta and variances with: for each parameter the "
		"length of its blocks, which share a scale and a variance, and one "
		"codebook of 256 values, the exact optimum for all values divided by the largest "
		"of their block. IN is a recording, of which the first step counts, or a "
		"checkpoint, whose momenta and variances count. -v shows the entries.",
	.examples = "  tersor codebook recording\n"
		    "  tersor codebook checkpoint.safetensors --svg codebook.svg\n",
	.opts = opts,
	.takes = CLI_READS | CLI_WORKS | CLI_REPORTS | CLI_NUMBERS,
	.operands_min = 1,
	.operands_max = 4096,
	.args_nbytes = sizeof(struct args),
	.run = run,
};
