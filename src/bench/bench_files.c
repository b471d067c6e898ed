/* SPDX-License-Identifier: Apache-2.0 */
/* The speed of packing, unpacking and verifying files, and of copying them. */
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fail.h"
#include "bench/bench_engine.h"
#include "compare/comparison.h"
#include "format/safetensors.h"
#include "io/file.h"
#include "pack/packing.h"
#include "text/text.h"

#define CHUNK ((size_t)256 << 10) /* what `cp` reads and writes at a time, roughly */
#define LAYERS 16
#define TENSORS (3 * LAYERS)
#define REPEATS_MAX 1000

enum path { SOURCE, COPY, PACKED, UNPACKED, PATHS };

struct files {
	char *path[PATHS];
	const struct tsr_run *run;
	char buffer[CHUNK];
};

/* --- The checkpoint -------------------------------------------------------------------------- */

/* LAYERS weights with their momenta and variances, @numel elements each. */
static enum tsr_status compose(uint64_t numel, struct tsr_text *header, struct tsr_err *err)
{
	static const char *const suffixes[] = { "", ".exp_avg", ".exp_avg_sq" };
	struct tsr_st_entry entries[TENSORS];
	char names[TENSORS][48];
	const uint64_t shape[1] = { numel };

	for (unsigned i = 0; i < TENSORS; i++) {
		snprintf(names[i], sizeof(names[i]), "layer.%02u.weight%s", i / 3, suffixes[i % 3]);
		entries[i] = (struct tsr_st_entry){ .name = names[i],
						    .dtype = TSR_F32,
						    .rank = 1,
						    .shape = shape,
						    .nbytes = numel * sizeof(float) };
	}
	tsr_st_layout(entries, TENSORS);
	tsr_st_compose(entries, TENSORS, NULL, 0, header);
	return header->failed ? tsr_fail_nomem(err, "benchmark file")
			      : tsr_st_frame(header, header->nbytes, "benchmark file", err);
}

/* The header, and each tensor's values over and over. */
static enum tsr_status write_source(struct files *f, struct tsr_outfile *out,
				    const struct tsr_text *header, uint64_t tensor_nbytes,
				    struct tsr_err *err)
{
	uint64_t offset = header->nbytes;

	TSR_TRY(tsr_outfile_write(out, header->bytes, header->nbytes, 0, err));
	for (unsigned i = 0; i < TENSORS; i++) {
		const enum tsr_kind kind = tsr_slot_kind((enum tsr_slot)(i % 3));

		tsr_bench_values(kind, i, CHUNK / sizeof(float), (float *)(void *)f->buffer);
		for (uint64_t at = 0; at < tensor_nbytes; at += CHUNK) {
			const uint64_t left = tensor_nbytes - at;

			TSR_TRY(tsr_outfile_write(out, f->buffer,
						  left < CHUNK ? (size_t)left : CHUNK, offset + at,
						  err));
		}
		offset += tensor_nbytes;
	}
	return TSR_OK;
}

static enum tsr_status make_source(struct files *f, uint64_t nbytes, uint64_t *nbytes_ret,
				   struct tsr_err *err)
{
	const uint64_t numel = nbytes / (TENSORS * sizeof(float)) + 1;
	TSR_SCOPED(tsr_text_free) struct tsr_text header = { 0 };
	TSR_OWNED(tsr_outfile_discard) struct tsr_outfile *out = NULL;

	TSR_TRY(compose(numel, &header, err));
	*nbytes_ret = header.nbytes + TENSORS * numel * sizeof(float);
	TSR_TRY(tsr_outfile_create(f->path[SOURCE], true, *nbytes_ret, &out, err));
	TSR_TRY(write_source(f, out, &header, numel * sizeof(float), err));
	return tsr_outfile_publish(&out, err);
}

/* --- What is measured ------------------------------------------------------------------------ */

/* What `cp` does: one thread, read and write. */
static enum tsr_status copy_file(struct files *f, struct tsr_err *err)
{
	TSR_OWNED(tsr_file_close) struct tsr_file *in = NULL;
	TSR_OWNED(tsr_outfile_discard) struct tsr_outfile *out = NULL;

	TSR_TRY(tsr_file_open(f->path[SOURCE], &in, err));
	TSR_TRY(tsr_outfile_create(f->path[COPY], true, 0, &out, err));
	for (uint64_t at = 0; at < tsr_file_size(in); at += CHUNK) {
		const uint64_t left = tsr_file_size(in) - at;
		const size_t n = left < CHUNK ? (size_t)left : CHUNK;

		TSR_TRY(tsr_file_read(in, f->buffer, n, at, err));
		TSR_TRY(tsr_outfile_write(out, f->buffer, n, at, err));
	}
	return tsr_outfile_publish(&out, err);
}

static enum tsr_status pack_file(struct files *f, struct tsr_err *err)
{
	const char *in = f->path[SOURCE];
	const struct tsr_pack_options o = tsr_pack_defaults();
	TSR_OWNED(tsr_packing_free) struct tsr_packing *p = NULL;

	return tsr_pack(&in, 1, f->path[PACKED], &o, f->run, &p, err);
}

static enum tsr_status unpack_file(struct files *f, struct tsr_err *err)
{
	const struct tsr_write_options o = tsr_write_defaults();
	TSR_OWNED(tsr_unpacking_free) struct tsr_unpacking *u = NULL;

	return tsr_unpack(f->path[PACKED], f->path[UNPACKED], &o, f->run, &u, err);
}

static enum tsr_status verify_file(struct files *f, struct tsr_err *err)
{
	const struct tsr_verify_options o = tsr_verify_defaults();
	TSR_OWNED(tsr_verification_free) struct tsr_verification *v = NULL;

	return tsr_verify(f->path[PACKED], &o, f->run, &v, err);
}

/* In the order of a round.  Outputs are removed at once, but one that is kept for the ways that follow. */
static const struct way {
	const char *name;
	enum tsr_status (*run)(struct files *f, struct tsr_err *err);
	enum path output; /* PATHS: none */
	bool kept;
} ways[] = {
	{ "copy", copy_file, COPY, false },
	{ "pack", pack_file, PACKED, true },
	{ "unpack", unpack_file, UNPACKED, false },
	{ "verify", verify_file, PATHS, false },
};

#define WAYS (sizeof(ways) / sizeof(*ways))

/* Round by round, so that a change in the machine's speed affects all of them. */
static enum tsr_status measure(struct files *f, unsigned repeats, struct tsr_bench *ret,
			       struct tsr_err *err)
{
	static double seconds[WAYS][REPEATS_MAX];

	for (unsigned i = 0; i < repeats; i++) {
		for (size_t k = 0; k < WAYS; k++) {
			const char *output = ways[k].output < PATHS ? f->path[ways[k].output]
								    : NULL;
			double start;

			if (output)
				unlink(output);
			start = tsr_seconds();
			TSR_TRY(ways[k].run(f, err));
			seconds[k][i] = tsr_seconds() - start;
			if (output && !ways[k].kept)
				unlink(output);
		}
	}
	for (size_t k = 0; k < WAYS; k++)
		tsr_bench_add(ret, TSR_BENCH_FILES, ways[k].name)->gbps[0] =
			1e-9 * (double)ret->nbytes / tsr_bench_median(seconds[k], repeats);
	ret->copy_gbps = ret->rows[0].gbps[0];
	return TSR_OK;
}

static enum tsr_status measure_in(struct files *f, const struct tsr_bench_options *o,
				  struct tsr_bench *ret, struct tsr_err *err)
{
	static const char *const names[] = { "source", "copy", "packed", "unpacked" };
	struct rusage usage;

	for (unsigned i = 0; i < PATHS; i++) {
		struct tsr_text t = { 0 };

		tsr_text_printf(&t, "%s/tersor-bench-%ld-%s", o->dir, (long)getpid(), names[i]);
		if (t.failed)
			return tsr_fail_nomem(err, o->dir);
		f->path[i] = t.bytes;
	}
	TSR_TRY(make_source(f, o->file_nbytes, &ret->nbytes, err));
	TSR_TRY(measure(f, (unsigned)o->repeats, ret, err));
	getrusage(RUSAGE_SELF, &usage);
	ret->peak_rss_nbytes = (uint64_t)usage.ru_maxrss * 1024;
	return TSR_OK;
}

enum tsr_status tsr_bench_files(const struct tsr_bench_options *o, const struct tsr_run *run,
				struct tsr_bench *ret, struct tsr_err *err)
{
	struct files *f;
	enum tsr_status status;

	TSR_TRY(TSR_NEW(&f, 1, err, o->dir));
	f->run = run;
	*ret = (struct tsr_bench){ .threads = tsr_run_threads(run) };
	status = measure_in(f, o, ret, err);
	for (unsigned i = 0; i < PATHS; i++) {
		if (f->path[i])
			unlink(f->path[i]);
		free(f->path[i]);
	}
	free(f);
	return status;
}
