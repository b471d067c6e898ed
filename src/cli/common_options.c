/* SPDX-License-Identifier: Apache-2.0 */
/* The options that commands share, and all options of a command in the order of its help. */
#include "cli/cli.h"

#define AT(field) offsetof(struct cli_common, field)

static const struct cli_opt output_opts[] = { { "output", 'o', "OUT", CLI_STRING, AT(output), 0, 0,
						"@file", "write the result to OUT" },
					      { 0 } };
static const struct cli_opt draw_opts[] = {
	CLI_OPT("csv", "FILE", CLI_OPTIONAL, csv, "@report",
		"print the figures as CSV, or write them to FILE"),
	CLI_OPT("svg", "FILE", CLI_STRING, svg, "@report", "draw a chart"),
	CLI_OPT("html", "FILE", CLI_STRING, html, "@report",
		"write a page with the chart, its values and tables"),
	{ 0 }
};
static const struct cli_opt write_opts[] = {
	CLI_OPT_NUMBER("max-shard-size", "SIZE", max_shard, 1, UINT64_MAX,
		       "split into safetensors shards of at most SIZE bytes of data, with an "
		       "index"),
	{ "force", 'f', NULL, CLI_FLAG, AT(force), 0, 0, NULL, "overwrite OUT if it exists" },
	CLI_OPT_FLAG("dry-run", dry_run, "show the plan: read headers only, write nothing"),
	{ 0 }
};
static const struct cli_opt read_opts[] = {
	CLI_OPT_FLAG("follow-symlinks", follow, "open shards that are symbolic links"),
	CLI_OPT("as", "DTYPE", CLI_STRING, as, "bf16 f16 f8_e4m3 f8_e5m2",
		"dtype of .npy elements that have none: bf16, f8_e4m3, ..."),
	CLI_OPT("params", "FILE", CLI_STRING, params, "@file",
		"names of parameters, one per line, in the optimizer's order"),
	{ 0 }
};
static const struct cli_opt device_opts[] = {
	CLI_OPT("device", "DEVICE", CLI_STRING, device, "auto cpu cuda",
		"where to compute: auto (default), cpu, cuda or cuda:N"),
	{ 0 }
};
static const struct cli_opt work_opts[] = {
	{ "threads", 'j', "N", CLI_NUMBER, AT(threads), 0, 256, NULL,
	  "worker threads (default 0: one per processor)" },
	CLI_OPT_FLAG("no-progress", no_progress, "do not show a progress bar"),
	{ 0 }
};
static const struct cli_opt report_opts[] = {
	CLI_OPT("json", "FILE", CLI_OPTIONAL, json, "@report",
		"print the report as JSON, or write it to FILE"),
	{ "quiet", 'q', NULL, CLI_COUNT, AT(quiet), 0, 0, NULL,
	  "no warnings; given twice, no report either" },
	{ "verbose", 'v', NULL, CLI_COUNT, AT(verbose), 0, 0, NULL,
	  "report details, such as every tensor" },
	{ 0 }
};
static const struct cli_opt help_opts[] = {
	{ "help", 'h', NULL, CLI_FLAG, AT(help), 0, 0, NULL, "show this help" }, { 0 }
};

static void add(struct cli_opts *to, bool taken, const struct cli_opt *opts)
{
	for (; taken && opts && opts->name; opts++)
		to->opt[to->n++] = opts;
}

void cli_collect_opts(const struct cli_cmd *cmd, struct cli_opts *ret)
{
	ret->n = 0;
	add(ret, cmd->takes & CLI_WRITES, output_opts);
	add(ret, true, cmd->opts);
	add(ret, cmd->takes & CLI_DRAWS, draw_opts);
	add(ret, cmd->takes & CLI_WRITES, write_opts);
	add(ret, cmd->takes & CLI_READS, read_opts);
	add(ret, cmd->takes & CLI_COMPUTES, device_opts);
	add(ret, cmd->takes & CLI_WORKS, work_opts);
	add(ret, cmd->takes & CLI_REPORTS, report_opts);
	add(ret, true, help_opts);
}
