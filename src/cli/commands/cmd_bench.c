/* SPDX-License-Identifier: Apache-2.0 */
/* tersor bench: speed of codecs, optimizer steps and files. */
#include <inttypes.h>
#include <stdio.h>

#include "bench/bench.h"
#include "cli/coding.h"
#include "cli/device.h"
#include "cli/output.h"
#include "cli/work.h"
#include "text/json.h"

struct args {
	struct cli_common common;
	const char *codec, *dir;
	uint64_t elements, repeats, file_size;
	bool codebook, entropy;
};

#define AT(field) offsetof(struct args, field)

static const struct cli_opt opts[] = {
	CLI_OPT("codec", "CODEC", CLI_STRING, codec, "@weight", "measure this codec only"),
	CLI_OPT_NUMBER("elements", "N", elements, 1024, UINT64_C(1) << 34,
		       "FP32 elements per run (default 64M, on a GPU 1G)"),
	CLI_OPT_NUMBER("repeats", "N", repeats, 1, 1000,
		       "runs, of which the median counts (default 7, with --dir 3, on a GPU 20)"),
	CLI_OPT("dir", "DIR", CLI_STRING, dir, "@file",
		"measure pack, unpack and verify on files in DIR, and plain copying"),
	CLI_OPT_NUMBER("file-size", "BYTES", file_size, 1 << 20, UINT64_C(1) << 42,
		       "size of the checkpoint made for --dir (default 3G)"),
	CLI_OPT_FLAG("codebook", codebook,
		     "measure finding a codebook of 256 entries, and finding it by trying "
		     "everything"),
	CLI_OPT_FLAG("entropy", entropy,
		     "measure coding and decoding the planes of a state: that of a packed FILE, or "
		     "a made one"),
	{ 0 }
};

/* --- Reports --------------------------------------------------------------------------------- */

/* Bytes per second, and their share of those of a copy: in JSON as it is, in percent for people. */
static void add_speed(struct tsr_table *t, const char *const keys[3], const char *shown,
		      double gbps, double copy_gbps)
{
	TSR_CELL(t, keys[0], shown, gbps);
	TSR_CELL(t, keys[1], NULL, gbps / copy_gbps);
	TSR_CELL(t, keys[2], "of copy\n%:.0f", 100 * gbps / copy_gbps);
}

static const char *const encode_keys[] = { "encode_gbps", "encode_of_copy", "-encode" };
static const char *const decode_keys[] = { "decode_gbps", "decode_of_copy", "-decode" };
static const char *const step_keys[] = { "gbps", "of_copy", "-step" };

/* A table in text and as a member. */
static void report_table(struct tsr_report *r, struct tsr_table *t, const char *key)
{
	if (r->wants_json)
		tsr_table_put_json(t, key, &r->json);
	tsr_report_table(r, t, t->nrows ? "" : NULL, NULL);
}

/* Where it was measured. */
static void report_device(struct tsr_report *r, const char *device, unsigned threads,
			  const char *isa)
{
	if (threads)
		tsr_report_say(r, TSR_TO_TEXT, "%u threads, %s", threads, isa);
	else
		tsr_report_say(r, TSR_TO_TEXT, "%s", device);
	if (!r->wants_json)
		return;
	if (device && *device)
		tsr_json_put_string(&r->json, "device", device);
	if (threads) {
		tsr_json_put_u64(&r->json, "threads", threads);
		tsr_json_put_string(&r->json, "simd", isa);
	}
}

static int report_kernels(const struct cli_cmd *cmd, const struct args *a,
			  const struct tsr_bench_kernels *b, uint64_t elements, unsigned repeats)
{
	struct tsr_report r = cli_report(cmd, &a->common, NULL);
	struct tsr_table kernels = { 0 }, steps = { 0 };

	report_device(&r, b->device, b->threads, b->isa);
	if (r.wants_json) {
		tsr_json_put_u64(&r.json, "elements", elements);
		tsr_json_put_u64(&r.json, "repeats", repeats);
		tsr_json_put_double(&r.json, "copy_gbps", b->copy_gbps);
	}
	for (unsigned i = 0; i < b->nkernels; i++) {
		const struct tsr_bench_kernel *k = &b->kernels[i];

		tsr_row(&kernels);
		TSR_CELL(&kernels, "codec", "codec:13", k->name);
		TSR_CELL(&kernels, "bytes_per_element", "bytes\n/elem:.3g", k->bytes_per_element);
		add_speed(&kernels, encode_keys, "encode\nGB/s:9.1f", k->encode_gbps, b->copy_gbps);
		add_speed(&kernels, decode_keys, "decode\nGB/s:9.1f", k->decode_gbps, b->copy_gbps);
	}
	for (unsigned i = 0; i < b->nsteps; i++) {
		tsr_row(&steps);
		TSR_CELL(&steps, "step", "step:13", b->steps[i].name);
		TSR_CELL(&steps, "bytes_per_element", "bytes\n/elem:.4g",
			 b->steps[i].bytes_per_element);
		add_speed(&steps, step_keys, "GB/s:9.1f", b->steps[i].gbps, b->copy_gbps);
	}
	tsr_report_say(&r, TSR_TO_TEXT, "copy bandwidth, read + write: %.1f GB/s", b->copy_gbps);
	tsr_report_gap(&r);
	report_table(&r, &kernels, "kernels");
	if (b->nsteps)
		tsr_report_gap(&r);
	report_table(&r, &steps, "steps");
	return cli_end_report(&r, &a->common);
}

static int report_files(const struct cli_cmd *cmd, const struct args *a,
			const struct tsr_bench_files *f)
{
	const struct {
		const char *key, *name;
		double gbps;
	} speeds[] = { { "copy_gbps", "copy", f->copy_gbps },
		       { "pack_gbps", "pack", f->pack_gbps },
		       { "unpack_gbps", "unpack", f->unpack_gbps },
		       { "verify_gbps", "verify", f->verify_gbps } };
	struct tsr_report r = cli_report(cmd, &a->common, NULL);
	struct tsr_table t = { 0 };

	if (r.wants_json) {
		tsr_json_put_u64(&r.json, "threads", f->threads);
		tsr_json_put_u64(&r.json, "nbytes", f->nbytes);
	}
	for (size_t i = 0; i < sizeof(speeds) / sizeof(*speeds); i++) {
		tsr_row(&t);
		TSR_CELL(&t, "name", " :8", speeds[i].name);
		TSR_CELL(&t, "gbps", "GB/s:8.2f", speeds[i].gbps);
		TSR_CELL(&t, "of_copy", "x copy:8.2f", speeds[i].gbps / f->copy_gbps);
		if (r.wants_json)
			tsr_json_put_double(&r.json, speeds[i].key, speeds[i].gbps);
	}
	if (r.wants_json)
		tsr_json_put_u64(&r.json, "peak_rss_nbytes", f->peak_rss_nbytes);
	tsr_report_say(&r, TSR_TO_TEXT,
		       "%u threads, checkpoint of %.2f GB; speeds in GB/s of FP32 checkpoint",
		       f->threads, 1e-9 * (double)f->nbytes);
	tsr_report_gap(&r);
	tsr_report_table(&r, &t, "", NULL);
	tsr_report_gap(&r);
	tsr_report_say(&r, TSR_TO_TEXT, "peak memory %.0f MiB",
		       (double)f->peak_rss_nbytes / 1048576);
	return cli_end_report(&r, &a->common);
}

static int report_codebook(const struct cli_cmd *cmd, const struct args *a, unsigned nbins,
			   const struct tsr_bench_codebook *b)
{
	struct tsr_report r = cli_report(cmd, &a->common, NULL);

	tsr_report_say(
		&r, TSR_TO_TEXT,
		"codebook of 256 entries from %u bins: %.4f s; by trying everything: %.2f s, "
		"%.0f times as long; %s entries",
		nbins, b->seconds, b->plain_seconds, b->plain_seconds / b->seconds,
		b->same ? "the same" : "other");
	if (r.wants_json) {
		tsr_json_put_double(&r.json, "codebook_seconds", b->seconds);
		tsr_json_put_double(&r.json, "plain_seconds", b->plain_seconds);
		tsr_json_put_double(&r.json, "times", b->plain_seconds / b->seconds);
		tsr_json_put_bool(&r.json, "same", b->same);
	}
	return cli_end_report(&r, &a->common);
}

static int report_entropy(const struct cli_cmd *cmd, const struct args *a,
			  const struct tsr_bench_entropy *b)
{
	const bool gpu = b->device[0];
	struct tsr_report r = cli_report(cmd, &a->common, NULL);
	struct tsr_table t = { 0 };
	uint64_t compared = 0;

	report_device(&r, b->device, gpu ? 0 : b->threads, b->isa);
	if (r.wants_json && gpu)
		tsr_json_put_double(&r.json, "copy_gbps", b->copy_gbps);
	for (unsigned i = 0; i < TSR_BENCH_CODED; i++) {
		const struct tsr_bench_plane *p = &b->planes[i];
		/* Plain and coded bytes are read or written. */
		const double moved = 1 + p->coded_bytes_per_element / p->bytes_per_element;

		if (!p->elements)
			continue;
		tsr_row(&t);
		TSR_CELL(&t, "plane", "plane:19", p->name);
		TSR_CELL(&t, "elements", NULL, p->elements);
		TSR_CELL(&t, "bytes_per_element", "bytes/elem:.3g", p->bytes_per_element);
		TSR_CELL(&t, "coded_bytes_per_element", "coded:.4f", p->coded_bytes_per_element);
		TSR_CELL(&t, "encode_gbps", "encode:8.2f", p->encode_gbps);
		TSR_CELL(&t, "decode_gbps", "decode:8.2f", p->decode_gbps);
		if (gpu) {
			TSR_CELL(&t, "encode_of_copy", "of copy:8.2f",
				 p->encode_gbps * moved / b->copy_gbps);
			TSR_CELL(&t, "decode_of_copy", "of copy:8.2f",
				 p->decode_gbps * moved / b->copy_gbps);
		}
		TSR_CELL(&t, "compared_pieces", NULL, p->compared);
		compared += p->compared;
	}
	tsr_report_say(&r, TSR_TO_TEXT, "speeds in GB/s of the plane%s",
		       gpu ? ", and what is read and written of copy" : "");
	tsr_report_gap(&r);
	report_table(&r, &t, "planes");
	if (gpu)
		tsr_report_heading(&r, TSR_TO_TEXT, "%" PRIu64 " pieces compared: the CPU's bytes",
				   compared);
	return cli_end_report(&r, &a->common);
}

/* --- What is measured ------------------------------------------------------------------------ */

/* @gpu: on GPU @index. */
static int run_kernels(const struct cli_cmd *cmd, const struct args *a, bool gpu, unsigned index)
{
	const uint64_t elements = a->elements ? a->elements
				  : gpu	      ? UINT64_C(1) << 30
					      : UINT64_C(64) << 20;
	const unsigned repeats = a->repeats ? (unsigned)a->repeats : gpu ? 20 : 7;
	struct tsr_bench_kernels r;
	struct tsr_err err = { 0 };
	enum tsr_status status;
	struct cli_work work;

	cli_work_start(&work, &a->common, "measuring");
	if (gpu)
		status = tsr_bench_kernels_gpu(index, a->codec, elements, repeats, &work.run, &r,
					       &err);
	else
		status = tsr_bench_kernels(a->codec, elements, repeats, &work.run, &r, &err);
	cli_work_end(&work);
	if (status != TSR_OK)
		return cli_error(&err);
	return report_kernels(cmd, a, &r, elements, repeats);
}

static int run_files(const struct cli_cmd *cmd, const struct args *a)
{
	const uint64_t nbytes = a->file_size ? a->file_size : UINT64_C(3) << 30;
	const unsigned repeats = a->repeats ? (unsigned)a->repeats : 3;
	struct tsr_bench_files r;
	struct tsr_err err = { 0 };
	enum tsr_status status;
	struct cli_work work;

	cli_work_start(&work, &a->common, "measuring");
	status = tsr_bench_files(a->dir, nbytes, repeats, &work.run, &r, &err);
	cli_work_end(&work);
	if (status != TSR_OK)
		return cli_error(&err);
	return report_files(cmd, a, &r);
}

static int run_codebook(const struct cli_cmd *cmd, const struct args *a)
{
	const unsigned nbins = a->elements ? (unsigned)a->elements : TSR_LEARNED_BINS;
	struct tsr_bench_codebook r;
	struct tsr_err err = { 0 };

	if (tsr_bench_codebook(nbins, a->repeats ? (unsigned)a->repeats : 7, &r, &err) != TSR_OK)
		return cli_error(&err);
	return report_codebook(cmd, a, nbins, &r);
}

/* @gpu: the GPU to measure; NULL: the CPU. */
static int run_entropy(const struct cli_cmd *cmd, const struct args *a, const unsigned *gpu)
{
	const unsigned repeats = a->repeats ? (unsigned)a->repeats : gpu ? 20 : 7;
	const uint64_t elements = a->elements ? a->elements : UINT64_C(1) << (gpu ? 30 : 24);
	const char *path = a->common.operands.n ? a->common.operands.items[0] : NULL;
	struct tsr_bench_entropy r;
	struct tsr_err err = { 0 };
	enum tsr_status status;
	struct cli_work work;

	cli_work_start(&work, &a->common, "measuring");
	status = gpu ? tsr_bench_entropy_gpu(*gpu, path, elements, repeats, &work.run, &r, &err)
		     : tsr_bench_entropy(path, elements, repeats, &work.run, &r, &err);
	cli_work_end(&work);
	if (status != TSR_OK)
		return cli_error(&err);
	return report_entropy(cmd, a, &r);
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

	if (a->common.operands.n && !a->entropy)
		return cli_usage(cmd, "a file goes with --entropy only");
	if (a->codebook &&
	    (a->dir || a->codec || a->entropy || device || a->elements > TSR_LEARNED_BINS))
		return cli_usage(cmd, "--codebook goes with --repeats and --elements up to %d only",
				 TSR_LEARNED_BINS);
	if (a->codebook)
		return run_codebook(cmd, a);
	if (!gpu)
		CLI_TRY(cli_choose_device(cmd, device, false, &cpu));
	if (cpu.ngpus)
		return cli_usage(cmd, "one GPU is measured: found --device %s, expected cuda:N",
				 device);
	if (a->entropy && (a->dir || a->codec))
		return cli_usage(cmd, "--entropy goes with no codec or directory");
	if (a->common.operands.n && a->elements && !gpu)
		return cli_usage(cmd, "--elements does not go with a file");
	if (a->entropy)
		return run_entropy(cmd, a, gpu ? &index : NULL);
	if (gpu && a->dir)
		return cli_usage(cmd, "--dir does not go with --device %s", device);
	if (a->dir && (a->codec || a->elements))
		return cli_usage(cmd, "--codec and --elements do not go with --dir");
	if (!a->dir && a->file_size)
		return cli_usage(cmd, "--file-size needs --dir");
	if (a->codec)
		CLI_TRY(cli_parse_codec(cmd, a->codec, ANY_KIND, &codec));
	return a->dir ? run_files(cmd, a) : run_kernels(cmd, a, gpu, index);
}

const struct cli_cmd cmd_bench = {
	.name = "bench",
	.summary = "measure codecs and files, and plain copying to compare with",
	.operands = "[FILE]",
	.operands_max = 1,
	.details = "Measures every codec, and steps of optimizers, in memory: bytes read and "
		   "written per second, and their share of the copy bandwidth measured in the "
		   "same run. With --dir, measures packing, unpacking and verifying a generated "
		   "checkpoint, and copying the same file. --device cuda is the first GPU.",
	.examples = "  tersor bench\n"
		    "  tersor bench --dir /dev/shm --file-size 4G -j 2\n"
		    "  tersor bench --entropy packed.safetensors\n",
	.opts = opts,
	.takes = CLI_COMPUTES | CLI_WORKS | CLI_REPORTS,
	.args_nbytes = sizeof(struct args),
	.run = run,
};
