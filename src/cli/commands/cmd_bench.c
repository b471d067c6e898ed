/* SPDX-License-Identifier: Apache-2.0 */
/* tersor bench: speed of codecs, optimizer steps and files. */

#include "bench/bench.h"
#include "cli/words.h"
#include "cli/work.h"
#include "cli/files.h"

struct args {
	struct cli_common common;
	struct tsr_bench_options o;
	bool entropy;
};

#define AT(field) offsetof(struct args, field)

static const struct cli_opt opts[] = {
	CLI_OPT("codec", "CODEC", CLI_STRING, o.codec, "@weight"),
	CLI_OPT_NUMBER("elements", "N", o.elements, 1024, UINT64_C(1) << 34),
	CLI_OPT_NUMBER("repeats", "N", o.repeats, 1, 1000),
	CLI_OPT("dir", "DIR", CLI_STRING, o.dir, "@file", .excludes = "codec elements"),
	CLI_OPT_NUMBER("file-size", "BYTES", o.file_nbytes, 1 << 20, UINT64_C(1) << 42,
		       .needs = "dir"),
	CLI_OPT("entropy", NULL, CLI_FLAG, entropy, NULL, .excludes = "dir codec"),
	{ 0 }
};

static int measure(const struct cli_cmd *cmd, struct args *a, const struct tsr_bench_kind *kind)
{
	struct tsr_bench b;
	struct tsr_report r;
	struct cli_work work;

	cli_work_start(&work, &a->common, "measuring");
	if (cli_work_end(&work, tsr_bench_measure(kind, &a->o, &work.run, &b, &work.err)) != TSR_OK)
		return cli_error(&work.err);
	r = cli_report(cmd, &a->common, NULL);
	kind->report(&r, &a->o, &b);
	return cli_end_report(&r, &a->common);
}

#define ANY_KIND (TSR_KIND_WEIGHT | TSR_KIND_MOMENTUM | TSR_KIND_VARIANCE)

static int run(const struct cli_cmd *cmd, void *args)
{
	struct args *a = args;
	const char *device = a->common.device;
	unsigned index = 0;
	const bool gpu = device && tsr_gpu_parse(device, &index);
	const struct tsr_codec *codec;
	struct cli_device cpu = { .ngpus = 0 };
	const bool file = a->common.operands.n;

	if (file && !a->entropy)
		return cli_usage(cmd, "a file goes with --entropy only");
	if (!gpu)
		CLI_TRY(cli_choose_device(cmd, device, false, &cpu));
	if (cpu.ngpus)
		return cli_usage(cmd, "one GPU is measured: found --device %s, expected cuda:N",
				 device);
	if (file && a->o.elements && !gpu)
		return cli_usage(cmd, "--elements does not go with a file");
	if (gpu && a->o.dir)
		return cli_usage(cmd, "--dir does not go with --device %s", device);
	if (a->o.codec)
		CLI_TRY(cli_parse_codec(cmd, a->o.codec, ANY_KIND, &codec));
	a->o.gpu = gpu ? &index : NULL;
	a->o.path = file ? a->common.operands.items[0] : NULL;
	return measure(cmd, a,
		       a->entropy ? &tsr_bench_of_planes
		       : a->o.dir ? &tsr_bench_of_files
				  : &tsr_bench_of_arrays);
}

TSR_EMBED(help_bench, "man/help/bench.txt");

const struct cli_cmd cmd_bench = {
	.name = "bench",
	.summary = "measure codecs and files, and plain copying to compare with",
	.operands = "[FILE]",
	.help = help_bench,
	.opts = opts,
	.takes = CLI_COMPUTES | CLI_WORKS | CLI_REPORTS,
	.args_nbytes = sizeof(struct args),
	.run = run,
};
