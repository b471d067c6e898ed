/* SPDX-License-Identifier: Apache-2.0 */
/* tersor codebook: the blocks and the codebook that Gefen's state would have. */
#include <inttypes.h>
#include <stdio.h>

#include "charts/codebook_chart.h"
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

static void put_table(const struct args *a, const struct tsr_learned *l, struct tsr_text *out)
{
	double bytes = 0, elements = 0;

	tsr_text_printf(out, "%-44s %14s %8s %8s\n", "parameter", "elements", "period", "block");
	for (size_t i = 0; i < l->ntensors; i++) {
		const struct tsr_learned_tensor *t = &l->tensors[i];

		tsr_text_printf(out, "%-44s %14s %8u %8u%s\n", tsr_format_name(t->name, 44).text,
				tsr_format_count(t->numel).text, (unsigned)t->period,
				(unsigned)t->block, t->counted ? "" : "  not counted");
		bytes += bytes_of(t) * (double)t->numel;
		elements += (double)t->numel;
	}
	tsr_text_printf(out, "\n%d entries learned from %s values in %u of %d bins, NMSE %.4e\n",
			TSR_CODEBOOK_ENTRIES, tsr_format_count(total_count(l)).text, l->nonempty,
			TSR_LEARNED_BINS, l->nmse);
	tsr_text_printf(out, "%.4g bytes per parameter for both moments\n", bytes / elements);
	for (unsigned i = 0; a->common.verbose && i < TSR_CODEBOOK_ENTRIES; i++)
		tsr_text_printf(out, "%s%13.9g%s", i == 0 ? "\n" : "", (double)l->codebook[i],
				i % 6 == 5 || i == TSR_CODEBOOK_ENTRIES - 1 ? "\n" : "");
}

static void put_tensor(struct tsr_text *json, const struct tsr_learned_tensor *t)
{
	tsr_json_open(json, NULL, '{');
	tsr_json_put_string(json, "name", t->name);
	tsr_json_put_u64(json, "elements", t->numel);
	tsr_json_put_u64(json, "period", t->period);
	tsr_json_put_u64(json, "block", t->block);
	tsr_json_put_bool(json, "counted", t->counted);
	tsr_json_open(json, "candidates", '[');
	for (size_t i = 0; i < t->ncandidates; i++) {
		tsr_json_open(json, NULL, '{');
		tsr_json_put_u64(json, "length", t->candidates[i].length);
		tsr_json_put_double(json, "score", t->candidates[i].score);
		tsr_json_close(json, '}');
	}
	tsr_json_close(json, ']');
	tsr_json_close(json, '}');
}

static int report_json(const struct cli_cmd *cmd, const struct args *a, const struct tsr_learned *l)
{
	double entries[TSR_CODEBOOK_ENTRIES];
	struct tsr_text json = { 0 };

	for (unsigned i = 0; i < TSR_CODEBOOK_ENTRIES; i++)
		entries[i] = (double)l->codebook[i];
	cli_json_begin(&json, cmd);
	cli_json_inputs(&json, &a->common);
	tsr_json_put_string(&json, "partition",
			    a->learning.partition ? a->learning.partition : "adjacent");
	tsr_json_open(&json, "tensors", '[');
	for (size_t i = 0; i < l->ntensors; i++)
		put_tensor(&json, &l->tensors[i]);
	tsr_json_close(&json, ']');
	tsr_json_put_u64s(&json, "counts", l->count, TSR_LEARNED_BINS);
	tsr_json_put_u64(&json, "nonempty", l->nonempty);
	tsr_json_put_doubles(&json, "codebook", entries, TSR_CODEBOOK_ENTRIES);
	tsr_json_put_double(&json, "nmse", l->nmse);
	return cli_json_end(&json, &a->common);
}

static int report(const struct cli_cmd *cmd, const struct args *a, const struct tsr_learned *l)
{
	struct cli_reports reports = { 0 };
	int status;

	put_table(a, l, &reports.table);
	if (a->common.svg)
		tsr_codebook_put_svg(l, &reports.svg);
	status = cli_write_reports(&reports, &a->common);
	return status == CLI_OK && a->common.json.given ? report_json(cmd, a, l) : status;
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
