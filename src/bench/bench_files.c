/* SPDX-License-Identifier: Apache-2.0 */
/* The speed of packing, unpacking and verifying files, and of copying them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fail.h"
#include "io/file.h"
#include "base/pipeline.h"
#include "text/text.h"
#include "bench/bench.h"
#include "bench/bench_timing.h"
#include "format/safetensors.h"
#include "tersor/compare.h"
#include "tersor/pack.h"

#define CHUNK ((size_t)256 << 10) /* what `cp` reads and writes at a time, roughly */
#define LAYERS 16

struct bench {
	const char *dir;
	char *source, *copy, *packed, *unpacked;
	const struct tsr_run *run;
};

static char *path_in(const char *dir, const char *name)
{
	struct tsr_text t = { 0 };

	tsr_text_printf(&t, "%s/tersor-bench-%ld-%s", dir, (long)getpid(), name);
	return t.failed ? NULL : t.bytes;
}

/* LAYERS weights with their momenta and variances, @numel elements each. */
static enum tsr_status compose(uint64_t numel, struct tsr_text *header, uint64_t *data_nbytes_ret,
			       struct tsr_err *err)
{
	static const char *const suffixes[] = { "", ".exp_avg", ".exp_avg_sq" };
	struct tsr_st_entry entries[3 * LAYERS];
	char names[3 * LAYERS][48];
	const uint64_t shape[1] = { numel };

	for (unsigned i = 0; i < 3 * LAYERS; i++) {
		snprintf(names[i], sizeof(names[i]), "layer.%02u.weight%s", i / 3, suffixes[i % 3]);
		entries[i] = (struct tsr_st_entry){ .name = names[i],
						    .dtype = TSR_F32,
						    .rank = 1,
						    .shape = shape,
						    .nbytes = numel * sizeof(float) };
	}
	*data_nbytes_ret = tsr_st_layout(entries, 3 * LAYERS);
	tsr_st_compose(entries, 3 * LAYERS, NULL, 0, header);
	return header->failed ? tsr_fail_nomem(err, "benchmark file")
			      : tsr_st_frame(header, header->nbytes, "benchmark file", err);
}

static enum tsr_status make_source(const struct bench *b, uint64_t nbytes, struct tsr_err *err)
{
	const uint64_t numel = nbytes / (3 * LAYERS * sizeof(float)) + 1;
	float *values = malloc(CHUNK);
	struct tsr_text header = { 0 };
	struct tsr_outfile *out = NULL;
	uint64_t data_nbytes = 0;
	enum tsr_status status = values ? compose(numel, &header, &data_nbytes, err)
					: tsr_fail_nomem(err, b->source);

	if (status == TSR_OK)
		status = tsr_outfile_create(b->source, true, header.nbytes + data_nbytes, &out,
					    err);
	if (status == TSR_OK)
		status = tsr_outfile_write(out, header.bytes, header.nbytes, 0, err);
	for (uint64_t at = 0; at < data_nbytes && status == TSR_OK; at += CHUNK) {
		const size_t n = data_nbytes - at < CHUNK ? (size_t)(data_nbytes - at) : CHUNK;

		tsr_bench_values(values, n / sizeof(float), at);
		status = tsr_outfile_write(out, values, n, header.nbytes + at, err);
	}
	if (status == TSR_OK) {
		status = tsr_outfile_publish(out, err);
		out = NULL;
	}
	tsr_outfile_discard(out);
	tsr_text_free(&header);
	free(values);
	return status;
}

/* What `cp` does: one thread, read and write. */
static enum tsr_status copy_file(const struct bench *b, struct tsr_err *err)
{
	struct tsr_file *in = NULL;
	struct tsr_outfile *out = NULL;
	char *buf = malloc(CHUNK);
	enum tsr_status status = buf ? tsr_file_open(b->source, &in, err)
				     : tsr_fail_nomem(err, b->source);

	if (status == TSR_OK)
		status = tsr_outfile_create(b->copy, true, 0, &out, err);
	for (uint64_t at = 0; status == TSR_OK && at < tsr_file_size(in); at += CHUNK) {
		const uint64_t left = tsr_file_size(in) - at;
		const size_t n = left < CHUNK ? (size_t)left : CHUNK;

		status = tsr_file_read(in, buf, n, at, err);
		if (status == TSR_OK)
			status = tsr_outfile_write(out, buf, n, at, err);
	}
	if (status == TSR_OK) {
		status = tsr_outfile_publish(out, err);
		out = NULL;
	}
	tsr_outfile_discard(out);
	tsr_file_close(in);
	free(buf);
	return status;
}

static enum tsr_status pack_file(const struct bench *b, struct tsr_err *err)
{
	const char *in = b->source;
	struct tsr_pack_options o = tsr_pack_defaults();
	struct tsr_packing *p = NULL;
	enum tsr_status status;

	o.force = true;
	status = tsr_pack(&in, 1, b->packed, &o, b->run, &p, err);
	tsr_packing_free(p);
	return status;
}

static enum tsr_status unpack_file(const struct bench *b, struct tsr_err *err)
{
	struct tsr_write_options o = tsr_write_defaults();
	struct tsr_unpacking *u = NULL;
	enum tsr_status status;

	o.force = true;
	status = tsr_unpack(b->packed, b->unpacked, &o, b->run, &u, err);
	tsr_unpacking_free(u);
	return status;
}

static enum tsr_status verify_file(const struct bench *b, struct tsr_err *err)
{
	const struct tsr_verify_options o = tsr_verify_defaults();
	struct tsr_verification *v = NULL;
	const enum tsr_status status = tsr_verify(b->packed, &o, b->run, &v, err);

	tsr_verification_free(v);
	return status;
}

#define REPEATS_MAX 1000

/* What is measured, in the order of a round; outputs are removed before it runs again. */
enum { COPY, PACK, UNPACK, VERIFY, ACTIONS };

static enum tsr_status measure(const struct bench *b, unsigned repeats, double median[ACTIONS],
			       struct tsr_err *err)
{
	static enum tsr_status (*const actions[])(const struct bench *, struct tsr_err *) = {
		[COPY] = copy_file,
		[PACK] = pack_file,
		[UNPACK] = unpack_file,
		[VERIFY] = verify_file,
	};
	static double seconds[ACTIONS][REPEATS_MAX];
	const char *const outputs[] = { b->copy, b->packed, b->unpacked, NULL };

	/* Round by round, so that a change in the machine's speed affects all of them. */
	for (unsigned i = 0; i < repeats; i++) {
		for (unsigned a = 0; a < ACTIONS; a++) {
			double start;

			if (outputs[a])
				unlink(outputs[a]);
			start = tsr_seconds();
			TSR_TRY(actions[a](b, err));
			seconds[a][i] = tsr_seconds() - start;
			if (outputs[a] && a != PACK)
				unlink(outputs[a]);
		}
	}
	for (unsigned a = 0; a < ACTIONS; a++)
		median[a] = tsr_bench_median(seconds[a], repeats);
	return TSR_OK;
}

static enum tsr_status run_bench(const struct bench *b, uint64_t nbytes, unsigned repeats,
				 struct tsr_bench_files *r, struct tsr_err *err)
{
	struct tsr_file *source = NULL;
	double median[ACTIONS], gigabytes;
	struct rusage usage;

	TSR_TRY(make_source(b, nbytes, err));
	TSR_TRY(tsr_file_open(b->source, &source, err));
	r->nbytes = tsr_file_size(source);
	tsr_file_close(source);
	TSR_TRY(measure(b, repeats, median, err));
	gigabytes = 1e-9 * (double)r->nbytes;
	r->copy_gbps = gigabytes / median[COPY];
	r->pack_gbps = gigabytes / median[PACK];
	r->unpack_gbps = gigabytes / median[UNPACK];
	r->verify_gbps = gigabytes / median[VERIFY];
	getrusage(RUSAGE_SELF, &usage);
	r->peak_rss_nbytes = (uint64_t)usage.ru_maxrss * 1024;
	return TSR_OK;
}

enum tsr_status tsr_bench_files(const char *dir, uint64_t nbytes, unsigned repeats,
				const struct tsr_run *run, struct tsr_bench_files *ret,
				struct tsr_err *err)
{
	struct bench b = {
		.dir = dir,
		.source = path_in(dir, "source"),
		.copy = path_in(dir, "copy"),
		.packed = path_in(dir, "packed"),
		.unpacked = path_in(dir, "unpacked"),
		.run = run,
	};
	char *const paths[] = { b.source, b.copy, b.packed, b.unpacked };
	enum tsr_status status;

	*ret = (struct tsr_bench_files){ .threads = tsr_run_threads(run) };
	if (b.source && b.copy && b.packed && b.unpacked)
		status = run_bench(&b, nbytes, repeats < REPEATS_MAX ? repeats : REPEATS_MAX, ret,
				   err);
	else
		status = tsr_fail_nomem(err, dir);
	for (unsigned i = 0; i < 4; i++) {
		if (paths[i])
			unlink(paths[i]);
		free(paths[i]);
	}
	return status;
}
