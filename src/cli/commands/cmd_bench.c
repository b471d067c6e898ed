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

static void print_kernels(const struct tsr_bench_kernels *r)
{
	if (r->threads)
		printf("copy bandwidth, read + write, %u threads, %s: %.1f GB/s\n\n", r->threads,
		       r->isa, r->copy_gbps);
	else
		printf("%s\ncopy bandwidth, read + write: %.1f GB/s\n\n", r->device, r->copy_gbps);
	printf("%-13s %6s  %-20s  %-20s\n", "", "bytes", "encode", "decode");
	printf("%-13s %6s  %9s %10s  %9s %10s\n", "codec", "/elem", "GB/s", "of copy", "GB/s",
	       "of copy");
	for (unsigned i = 0; i < r->nkernels; i++) {
		const struct tsr_bench_kernel *k = &r->kernels[i];

		printf("%-13s %6.3g  %9.1f %9.0f%%  %9.1f %9.0f%%\n", k->name, k->bytes_per_element,
		       k->encode_gbps, 100 * k->encode_gbps / r->copy_gbps, k->decode_gbps,
		       100 * k->decode_gbps / r->copy_gbps);
	}
}

static void print_steps(const struct tsr_bench_kernels *r)
{
	printf("\n%-13s %6s  %9s %10s\n", "step", "bytes", "GB/s", "of copy");
	for (unsigned i = 0; i < r->nsteps; i++) {
		const struct tsr_bench_step *s = &r->steps[i];

		printf("%-13s %6.4g  %9.1f %9.0f%%\n", s->name, s->bytes_per_element, s->gbps,
		       100 * s->gbps / r->copy_gbps);
	}
}

static void print_files(const struct tsr_bench_files *r)
{
	printf("%u threads, checkpoint of %.2f GB; speeds in GB/s of FP32 checkpoint\n\n",
	       r->threads, 1e-9 * (double)r->nbytes);
	printf("%-8s %8s %8s\n", "", "GB/s", "of copy");
	printf("%-8s %8.2f\n", "copy", r->copy_gbps);
	printf("%-8s %8.2f %7.2fx\n", "pack", r->pack_gbps, r->pack_gbps / r->copy_gbps);
	printf("%-8s %8.2f %7.2fx\n", "unpack", r->unpack_gbps, r->unpack_gbps / r->copy_gbps);
	printf("%-8s %8.2f %7.2fx\n", "verify", r->verify_gbps, r->verify_gbps / r->copy_gbps);
	printf("\npeak memory %.0f MiB\n", (double)r->peak_rss_nbytes / 1048576);
}

static int report_files_json(const struct cli_cmd *cmd, const struct args *a,
			     const struct tsr_bench_files *f)
{
	struct tsr_text json = { 0 };

	cli_json_begin(&json, cmd);
	tsr_json_put_u64(&json, "threads", f->threads);
	tsr_json_put_u64(&json, "nbytes", f->nbytes);
	tsr_json_put_double(&json, "copy_gbps", f->copy_gbps);
	tsr_json_put_double(&json, "pack_gbps", f->pack_gbps);
	tsr_json_put_double(&json, "unpack_gbps", f->unpack_gbps);
	tsr_json_put_double(&json, "verify_gbps", f->verify_gbps);
	tsr_json_put_u64(&json, "peak_rss_nbytes", f->peak_rss_nbytes);
	return cli_json_end(&json, &a->common);
}

static void put_steps(struct tsr_text *json, const struct tsr_bench_kernels *r)
{
	tsr_json_open(json, "steps", '[');
	for (unsigned i = 0; i < r->nsteps; i++) {
		const struct tsr_bench_step *s = &r->steps[i];

		tsr_json_open(json, NULL, '{');
		tsr_json_put_string(json, "step", s->name);
		tsr_json_put_double(json, "bytes_per_element", s->bytes_per_element);
		tsr_json_put_double(json, "gbps", s->gbps);
		tsr_json_put_double(json, "of_copy", s->gbps / r->copy_gbps);
		tsr_json_close(json, '}');
	}
	tsr_json_close(json, ']');
}

static int report_kernels_json(const struct cli_cmd *cmd, const struct args *a,
			       const struct tsr_bench_kernels *r, uint64_t elements,
			       unsigned repeats)
{
	struct tsr_text json = { 0 };

	cli_json_begin(&json, cmd);
	tsr_json_put_string(&json, "device", r->device);
	if (r->threads) {
		tsr_json_put_u64(&json, "threads", r->threads);
		tsr_json_put_string(&json, "simd", r->isa);
	}
	tsr_json_put_u64(&json, "elements", elements);
	tsr_json_put_u64(&json, "repeats", repeats);
	tsr_json_put_double(&json, "copy_gbps", r->copy_gbps);
	tsr_json_open(&json, "kernels", '[');
	for (unsigned i = 0; i < r->nkernels; i++) {
		const struct tsr_bench_kernel *k = &r->kernels[i];

		tsr_json_open(&json, NULL, '{');
		tsr_json_put_string(&json, "codec", k->name);
		tsr_json_put_double(&json, "bytes_per_element", k->bytes_per_element);
		tsr_json_put_double(&json, "encode_gbps", k->encode_gbps);
		tsr_json_put_double(&json, "encode_of_copy", k->encode_gbps / r->copy_gbps);
		tsr_json_put_double(&json, "decode_gbps", k->decode_gbps);
		tsr_json_put_double(&json, "decode_of_copy", k->decode_gbps / r->copy_gbps);
		tsr_json_close(&json, '}');
	}
	tsr_json_close(&json, ']');
	put_steps(&json, r);
	return cli_json_end(&json, &a->common);
}

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
	if (cli_wants_text(&a->common))
		print_kernels(&r);
	if (cli_wants_text(&a->common) && r.nsteps)
		print_steps(&r);
	return a->common.json.given ? report_kernels_json(cmd, a, &r, elements, repeats) : CLI_OK;
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
	if (cli_wants_text(&a->common))
		print_files(&r);
	return a->common.json.given ? report_files_json(cmd, a, &r) : CLI_OK;
}

static int run_codebook(const struct cli_cmd *cmd, const struct args *a)
{
	const unsigned nbins = a->elements ? (unsigned)a->elements : TSR_LEARNED_BINS;
	struct tsr_text json = { 0 };
	struct tsr_bench_codebook r;
	struct tsr_err err = { 0 };

	if (tsr_bench_codebook(nbins, a->repeats ? (unsigned)a->repeats : 7, &r, &err) != TSR_OK)
		return cli_error(&err);
	if (cli_wants_text(&a->common))
		printf("codebook of 256 entries from %u bins: %.4f s; by trying everything: %.2f "
		       "s, %.0f times as long; %s entries\n",
		       nbins, r.seconds, r.plain_seconds, r.plain_seconds / r.seconds,
		       r.same ? "the same" : "other");
	if (!a->common.json.given)
		return CLI_OK;
	cli_json_begin(&json, cmd);
	tsr_json_put_double(&json, "codebook_seconds", r.seconds);
	tsr_json_put_double(&json, "plain_seconds", r.plain_seconds);
	tsr_json_put_double(&json, "times", r.plain_seconds / r.seconds);
	tsr_json_put_bool(&json, "same", r.same);
	return cli_json_end(&json, &a->common);
}

/* The share of the copy bandwidth: plain and coded bytes are read or written. */
static double coding_of_copy(const struct tsr_bench_entropy *r, const struct tsr_bench_plane *p,
			     double gbps)
{
	return gbps * (1 + p->coded_bytes_per_element / p->bytes_per_element) / r->copy_gbps;
}

static void print_entropy_gpu(const struct tsr_bench_entropy *r)
{
	uint64_t compared = 0;

	printf("%s\ncopy %.0f GB/s, read + write; speeds in GB/s of the plane, and what is read "
	       "and "
	       "written of copy\n\n",
	       r->device, r->copy_gbps);
	printf("%-19s %10s %10s %8s %8s %8s %8s\n", "plane", "bytes/elem", "coded", "encode",
	       "of copy", "decode", "of copy");
	for (unsigned i = 0; i < TSR_BENCH_CODED; i++) {
		const struct tsr_bench_plane *p = &r->planes[i];

		if (!p->elements)
			continue;
		printf("%-19s %10.0f %10.4f %8.2f %7.0f%% %8.2f %7.0f%%\n", p->name,
		       p->bytes_per_element, p->coded_bytes_per_element, p->encode_gbps,
		       100 * coding_of_copy(r, p, p->encode_gbps), p->decode_gbps,
		       100 * coding_of_copy(r, p, p->decode_gbps));
		compared += p->compared;
	}
	printf("\n%" PRIu64 " pieces compared: the CPU's bytes\n", compared);
}

static void print_entropy(const struct tsr_bench_entropy *r)
{
	if (r->device[0]) {
		print_entropy_gpu(r);
		return;
	}
	printf("%u threads, %s; speeds in GB/s of the plane\n\n", r->threads, r->isa);
	printf("%-19s %10s %10s %8s %8s\n", "plane", "bytes/elem", "coded", "encode", "decode");
	for (unsigned i = 0; i < TSR_BENCH_CODED; i++) {
		const struct tsr_bench_plane *p = &r->planes[i];

		if (!p->elements)
			continue;
		printf("%-19s %10.0f %10.4f %8.2f %8.2f\n", p->name, p->bytes_per_element,
		       p->coded_bytes_per_element, p->encode_gbps, p->decode_gbps);
	}
}

static int report_entropy_json(const struct cli_cmd *cmd, const struct args *a,
			       const struct tsr_bench_entropy *r)
{
	struct tsr_text json = { 0 };

	cli_json_begin(&json, cmd);
	if (r->device[0]) {
		tsr_json_put_string(&json, "device", r->device);
		tsr_json_put_double(&json, "copy_gbps", r->copy_gbps);
	} else {
		tsr_json_put_u64(&json, "threads", r->threads);
		tsr_json_put_string(&json, "simd", r->isa);
	}
	tsr_json_open(&json, "planes", '[');
	for (unsigned i = 0; i < TSR_BENCH_CODED; i++) {
		const struct tsr_bench_plane *p = &r->planes[i];

		if (!p->elements)
			continue;
		tsr_json_open(&json, NULL, '{');
		tsr_json_put_string(&json, "plane", p->name);
		tsr_json_put_u64(&json, "elements", p->elements);
		tsr_json_put_double(&json, "bytes_per_element", p->bytes_per_element);
		tsr_json_put_double(&json, "coded_bytes_per_element", p->coded_bytes_per_element);
		tsr_json_put_double(&json, "encode_gbps", p->encode_gbps);
		tsr_json_put_double(&json, "decode_gbps", p->decode_gbps);
		if (r->device[0]) {
			tsr_json_put_double(&json, "encode_of_copy",
					    coding_of_copy(r, p, p->encode_gbps));
			tsr_json_put_double(&json, "decode_of_copy",
					    coding_of_copy(r, p, p->decode_gbps));
		}
		tsr_json_put_u64(&json, "compared_pieces", p->compared);
		tsr_json_close(&json, '}');
	}
	tsr_json_close(&json, ']');
	return cli_json_end(&json, &a->common);
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
	if (cli_wants_text(&a->common))
		print_entropy(&r);
	return a->common.json.given ? report_entropy_json(cmd, a, &r) : CLI_OK;
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
