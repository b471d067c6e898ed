/* SPDX-License-Identifier: Apache-2.0 */
/* tersor bench: speed of codecs, optimizer steps and files. */

#include "bench/bench.h"
#include "cli/words.h"
#include "cli/work.h"
#include "cli/files.h"

struct args {
	struct cli_common common;
	const char *codec, *dir;
	uint64_t elements, repeats, file_size;
	bool entropy;
};

#define AT(field) offsetof(struct args, field)

static const struct cli_opt opts[] = {
	CLI_OPT("codec", "CODEC", CLI_STRING, codec, "@weight"),
	CLI_OPT_NUMBER("elements", "N", elements, 1024, UINT64_C(1) << 34),
	CLI_OPT_NUMBER("repeats", "N", repeats, 1, 1000),
	CLI_OPT("dir", "DIR", CLI_STRING, dir, "@file", .excludes = "codec elements"),
	CLI_OPT_NUMBER("file-size", "BYTES", file_size, 1 << 20, UINT64_C(1) << 42, .needs = "dir"),
	CLI_OPT("entropy", NULL, CLI_FLAG, entropy, NULL, .excludes = "dir codec"),
	{ 0 }
};

/* --- Reports --------------------------------------------------------------------------------- */

/* A speed, and its share of that of a copy: in JSON as it is, in percent for people. */
static void add_speed(struct tsr_table *t, const char *const keys[3], const char *shown,
		      double gbps, double copy_gbps)
{
	TSR_CELL(t, keys[0], shown, gbps);
	TSR_CELL(t, keys[1], NULL, gbps / copy_gbps);
	TSR_CELL(t, keys[2], "of copy\n%:.0f", 100 * gbps / copy_gbps);
}

static void add_kernel(struct tsr_table *t, const struct tsr_bench *b,
		       const struct tsr_bench_row *row)
{
	static const char *const encode[] = { "encode_gbps", "encode_of_copy", "-encode" };
	static const char *const decode[] = { "decode_gbps", "decode_of_copy", "-decode" };

	TSR_CELL(t, "codec", "codec:13", row->name);
	TSR_CELL(t, "bytes_per_element", "bytes\n/elem:.3g", row->bytes_per_element);
	add_speed(t, encode, "encode\nGB/s:9.1f", row->gbps[0], b->copy_gbps);
	add_speed(t, decode, "decode\nGB/s:9.1f", row->gbps[1], b->copy_gbps);
}

static void add_step(struct tsr_table *t, const struct tsr_bench *b,
		     const struct tsr_bench_row *row)
{
	static const char *const keys[] = { "gbps", "of_copy", "-step" };

	TSR_CELL(t, "step", "step:13", row->name);
	TSR_CELL(t, "bytes_per_element", "bytes\n/elem:.4g", row->bytes_per_element);
	add_speed(t, keys, "GB/s:9.1f", row->gbps[0], b->copy_gbps);
}

static void add_plane(struct tsr_table *t, const struct tsr_bench *b,
		      const struct tsr_bench_row *row)
{
	/* Plain and coded bytes are read or written. */
	const double moved = 1 + row->coded_bytes_per_element / row->bytes_per_element;

	TSR_CELL(t, "plane", "plane:12", row->name);
	TSR_CELL(t, "elements", NULL, row->elements);
	TSR_CELL(t, "bytes_per_element", "bytes/elem:.3g", row->bytes_per_element);
	TSR_CELL(t, "coded_bytes_per_element", "coded:.4f", row->coded_bytes_per_element);
	TSR_CELL(t, "encode_gbps", "encode:8.2f", row->gbps[0]);
	TSR_CELL(t, "decode_gbps", "decode:8.2f", row->gbps[1]);
	if (b->copy_gbps > 0) {
		TSR_CELL(t, "encode_of_copy", "of copy:8.2f", row->gbps[0] * moved / b->copy_gbps);
		TSR_CELL(t, "decode_of_copy", "of copy:8.2f", row->gbps[1] * moved / b->copy_gbps);
	}
	TSR_CELL(t, "compared_pieces", NULL, row->compared);
}

static void add_file(struct tsr_table *t, const struct tsr_bench *b,
		     const struct tsr_bench_row *row)
{
	TSR_CELL(t, "name", " :8", row->name);
	TSR_CELL(t, "gbps", "GB/s:8.2f", row->gbps[0]);
	TSR_CELL(t, "of_copy", "x copy:8.2f", row->gbps[0] / b->copy_gbps);
}

/* The rows of one table, in text and as a member @key; nothing if there are none. */
static void report_rows(struct tsr_report *r, const struct tsr_bench *b, enum tsr_bench_table table,
			const char *key,
			void (*add)(struct tsr_table *, const struct tsr_bench *,
				    const struct tsr_bench_row *))
{
	struct tsr_table t = { 0 };

	for (unsigned i = 0; i < b->nrows; i++) {
		if (b->rows[i].table != table)
			continue;
		tsr_row(&t);
		add(&t, b, &b->rows[i]);
	}
	if (t.nrows)
		tsr_report_gap(r);
	if (key && r->wants_json)
		tsr_table_put_json(&t, key, &r->json);
	tsr_report_table(r, t, "", NULL);
}

/* Where it was measured. */
static void report_device(struct tsr_report *r, const struct tsr_bench *b)
{
	if (b->threads)
		tsr_report_say(r, TSR_TO_TEXT, "%u threads, %s", b->threads, b->isa);
	else
		tsr_report_say(r, TSR_TO_TEXT, "%s", b->device);
	tsr_json_put_string(&r->json, "device", b->device);
	if (b->threads) {
		tsr_json_put_u64(&r->json, "threads", b->threads);
		tsr_json_put_string(&r->json, "simd", b->isa);
	}
	if (b->copy_gbps > 0)
		tsr_json_put_double(&r->json, "copy_gbps", b->copy_gbps);
}

static void report_arrays(struct tsr_report *r, const struct tsr_bench_options *o,
			  const struct tsr_bench *b)
{
	report_device(r, b);
	tsr_json_put_u64(&r->json, "elements", o->elements);
	tsr_json_put_u64(&r->json, "repeats", o->repeats);
	tsr_report_say(r, TSR_TO_TEXT, "copy bandwidth, read + write: %.1f GB/s", b->copy_gbps);
	report_rows(r, b, TSR_BENCH_KERNELS, "kernels", add_kernel);
	report_rows(r, b, TSR_BENCH_STEPS, "steps", add_step);
}

static void report_planes(struct tsr_report *r, const struct tsr_bench_options *o,
			  const struct tsr_bench *b)
{
	uint64_t compared = 0;

	for (unsigned i = 0; i < b->nrows; i++)
		compared += b->rows[i].compared;
	report_device(r, b);
	tsr_report_say(r, TSR_TO_TEXT, "speeds in GB/s of the plane%s",
		       o->gpu ? ", and what is read and written of copy" : "");
	report_rows(r, b, TSR_BENCH_PLANES, "planes", add_plane);
	if (o->gpu)
		tsr_report_heading(r, TSR_TO_TEXT, "%" PRIu64 " pieces compared: the CPU's bytes",
				   compared);
}

static void report_files(struct tsr_report *r, const struct tsr_bench_options *o,
			 const struct tsr_bench *b)
{
	(void)o;
	tsr_json_put_u64(&r->json, "threads", b->threads);
	tsr_json_put_u64(&r->json, "nbytes", b->nbytes);
	tsr_json_put_u64(&r->json, "peak_rss_nbytes", b->peak_rss_nbytes);
	for (unsigned i = 0; i < b->nrows; i++) {
		char key[32];

		snprintf(key, sizeof(key), "%s_gbps", b->rows[i].name);
		tsr_json_put_double(&r->json, key, b->rows[i].gbps[0]);
	}
	tsr_report_say(r, TSR_TO_TEXT,
		       "%u threads, checkpoint of %.2f GB; speeds in GB/s of FP32 checkpoint",
		       b->threads, 1e-9 * (double)b->nbytes);
	report_rows(r, b, TSR_BENCH_FILES, NULL, add_file);
	tsr_report_gap(r);
	tsr_report_say(r, TSR_TO_TEXT, "peak memory %.0f MiB",
		       (double)b->peak_rss_nbytes / 1048576);
}

/* --- What is measured ------------------------------------------------------------------------ */

/* The three kinds of measurement, with what they measure unless told: on the CPU, and on a GPU. */
static const struct measurement {
	enum tsr_status (*measure)(const struct tsr_bench_options *o, const struct tsr_run *run,
				   struct tsr_bench *ret, struct tsr_err *err);
	void (*report)(struct tsr_report *r, const struct tsr_bench_options *o,
		       const struct tsr_bench *b);
	uint64_t elements[2];
	unsigned repeats[2];
} arrays = { tsr_bench_arrays,
	     report_arrays,
	     { UINT64_C(64) << 20, UINT64_C(1) << 30 },
	     { 7, 20 } },
  planes = { tsr_bench_planes, report_planes, { UINT64_C(1) << 24, UINT64_C(1) << 30 }, { 7, 20 } },
  files = { tsr_bench_files, report_files, { 0, 0 }, { 3, 3 } };

static int measure(const struct cli_cmd *cmd, const struct args *a, const struct measurement *m,
		   const unsigned *gpu)
{
	const struct tsr_bench_options o = {
		.gpu = gpu,
		.codec = a->codec,
		.path = a->common.operands.n ? a->common.operands.items[0] : NULL,
		.dir = a->dir,
		.elements = a->elements ? a->elements : m->elements[gpu != NULL],
		.file_nbytes = a->file_size ? a->file_size : UINT64_C(3) << 30,
		.repeats = a->repeats ? (unsigned)a->repeats : m->repeats[gpu != NULL],
	};
	struct tsr_bench b;
	struct tsr_report r;
	struct cli_work work;

	cli_work_start(&work, &a->common, "measuring");
	if (cli_work_end(&work, m->measure(&o, &work.run, &b, &work.err)) != TSR_OK)
		return cli_error(&work.err);
	r = cli_report(cmd, &a->common, NULL);
	m->report(&r, &o, &b);
	return cli_end_report(&r, &a->common);
}

#define ANY_KIND (TSR_KIND_WEIGHT | TSR_KIND_MOMENTUM | TSR_KIND_VARIANCE)

static int run(const struct cli_cmd *cmd, void *args)
{
	const struct args *a = args;
	const char *device = a->common.device;
	unsigned index = 0;
	const bool gpu = device && tsr_gpu_parse(device, &index);
	const struct tsr_codec *codec;
	struct cli_device cpu = { .ngpus = 0 };
	const bool file = a->common.operands.n;
	char with_gpu[64];
	const struct cli_misuse misuses[] = { { file && a->elements && !gpu,
						"--elements does not go with a file" },
					      { gpu && a->dir, with_gpu },
					      { 0 } };

	if (file && !a->entropy)
		return cli_usage(cmd, "a file goes with --entropy only");
	if (!gpu)
		CLI_TRY(cli_choose_device(cmd, device, false, &cpu));
	if (cpu.ngpus)
		return cli_usage(cmd, "one GPU is measured: found --device %s, expected cuda:N",
				 device);
	snprintf(with_gpu, sizeof(with_gpu), "--dir does not go with --device %s",
		 gpu ? device : "");
	CLI_TRY(cli_check(cmd, misuses));
	if (a->codec)
		CLI_TRY(cli_parse_codec(cmd, a->codec, ANY_KIND, &codec));
	return measure(cmd, a,
		       a->entropy ? &planes
		       : a->dir	  ? &files
				  : &arrays,
		       gpu ? &index : NULL);
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
