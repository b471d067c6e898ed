/* SPDX-License-Identifier: Apache-2.0 */
/* What is measured, and the report of each kind. */
#include "bench/bench.h"

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

/* --- Kinds ----------------------------------------------------------------------------------- */

const struct tsr_bench_kind tsr_bench_of_arrays = {
	tsr_bench_arrays, report_arrays, { UINT64_C(64) << 20, UINT64_C(1) << 30 }, { 7, 20 }
};
const struct tsr_bench_kind tsr_bench_of_planes = {
	tsr_bench_planes, report_planes, { UINT64_C(1) << 24, UINT64_C(1) << 30 }, { 7, 20 }
};
const struct tsr_bench_kind tsr_bench_of_files = {
	tsr_bench_files, report_files, { 0, 0 }, { 3, 3 }
};

enum tsr_status tsr_bench_measure(const struct tsr_bench_kind *kind, struct tsr_bench_options *o,
				  const struct tsr_run *run, struct tsr_bench *ret,
				  struct tsr_err *err)
{
	const bool gpu = o->gpu != NULL;

	o->elements = o->elements ? o->elements : kind->elements[gpu];
	o->repeats = o->repeats ? o->repeats : kind->repeats[gpu];
	o->file_nbytes = o->file_nbytes ? o->file_nbytes : UINT64_C(3) << 30;
	return kind->measure(o, run, ret, err);
}
