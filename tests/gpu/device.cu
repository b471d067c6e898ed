/* SPDX-License-Identifier: Apache-2.0 */
/* Codecs on a stream of the caller, what they find of the elements, and signatures (tersor/device.h). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime.h>

extern "C" {
#include "check_gpu.h"
#include "tersor/device.h"
}

#define MOST 100003u

/* What the interface says of elements, one after the other. */
static struct tsr_device_found look(const float *x, size_t n, enum tsr_dtype narrow)
{
	/* Halfway from the largest finite value to the next power of two. */
	const double limit = narrow == TSR_BF16	 ? ldexp(2.0 - ldexp(1.0, -8), 127)
			     : narrow == TSR_F16 ? 65520.0
						 : INFINITY;
	struct tsr_device_found f = {};

	for (size_t i = 0; i < n; i++) {
		uint32_t bits;

		memcpy(&bits, &x[i], sizeof(bits));
		f.nonfinite += !isfinite(x[i]);
		f.negative += x[i] < 0.0f;
		f.nonzero += !(x[i] == 0.0f);
		f.fractional += !(fabsf(x[i]) <= 16777216.0f && x[i] == truncf(x[i]));
		f.wide += (bits & 0xffff) != 0;
		f.overflow += isfinite(x[i]) && fabs((double)x[i]) >= limit;
	}
	return f;
}

static void copy(void *to, const void *from, size_t nbytes, enum cudaMemcpyKind kind,
		 cudaStream_t on)
{
	expect(cudaMemcpyAsync(to, from, nbytes, kind, on) == cudaSuccess, "copied");
	expect(cudaStreamSynchronize(on) == cudaSuccess, "done");
}

/* Memory on both sides: elements, variances, planes, what is found. */
struct memory {
	float *x, *v, *back;
	unsigned char *want[TSR_PLANES_MAX], *got;
	float *device_x, *device_v, *device_ratios;
	void *device_plane[TSR_PLANES_MAX];
	struct tsr_device_found *device_found;
	cudaStream_t on;
};

static void check_one(struct memory *m, const struct tsr_codec *codec, size_t n, enum data data)
{
	struct tsr_coding coding = tsr_coding_default(codec);
	struct tsr_device_found want, got = {};
	struct tsr_encode_report report = {};
	const float *source = m->device_x;
	struct tsr_err err;

	coding.eps = 1e-8f;
	fill(m->x, n, data, n + data);
	fill(m->v, n, DATA_VARIANCES, n);
	copy(m->device_x, m->x, n * sizeof(float), cudaMemcpyHostToDevice, m->on);
	copy(m->device_v, m->v, n * sizeof(float), cudaMemcpyHostToDevice, m->on);
	copy(m->device_found, &got, sizeof(got), cudaMemcpyHostToDevice, m->on);
	must(tsr_device_prepare(gpu, &coding, &err), &err);
	if (codec->relative) {
		must(tsr_device_ratios(gpu, m->on, &coding, m->device_x, m->device_v, n,
				       m->device_ratios, &err),
		     &err);
		source = m->device_ratios;
		tsr_ratios_make(&coding, m->x, m->v, n);
	}
	want = look(m->x, n, codec->narrow);
	must(tsr_device_encode(gpu, m->on, &coding, source, n, m->device_plane, m->device_found,
			       &err),
	     &err);
	codec->encode(&coding, m->x, n, (void *const *)m->want, &report);
	want.report = report;
	copy(&got, m->device_found, sizeof(got), cudaMemcpyDeviceToHost, m->on);
	if (memcmp(&want, &got, sizeof(got)) != 0)
		check_failed("%s, %zu elements, data %d: found other counts", codec->name, n,
			     (int)data);
	for (unsigned i = 0; i < codec->nplanes; i++) {
		const size_t nbytes = (size_t)tsr_plane_nbytes(&coding, i, n);

		copy(m->got, m->device_plane[i], nbytes, cudaMemcpyDeviceToHost, m->on);
		if (memcmp(m->got, m->want[i], nbytes) != 0)
			check_failed("%s, %zu elements: plane %u differs", codec->name, n, i);
	}
	must(tsr_device_decode(gpu, m->on, &coding, (const void *const *)m->device_plane, n,
			       m->device_x, &err),
	     &err);
	copy(m->back, m->device_x, n * sizeof(float), cudaMemcpyDeviceToHost, m->on);
	codec->decode(&coding, (const void *const *)m->want, n, m->x);
	if (memcmp(m->back, m->x, n * sizeof(float)) != 0)
		check_failed("%s, %zu elements: decoded to other values", codec->name, n);
}

static void *on_device(size_t nbytes)
{
	struct tsr_err err;
	void *memory;

	must(tsr_gpu_alloc(gpu, nbytes, "a test array", &memory, &err), &err);
	return memory;
}

/* Tensors of a type in one kernel, of sizes around those of vectors, stripes, blocks and pieces; every 7th absent. */
static uint64_t check_signed(const struct memory *m, enum tsr_dtype dtype, enum data data)
{
	static const uint32_t sizes[] = { 0,	 1,	2,     15,    16,    17,     63,
					  64,	 65,	240,   255,   256,   257,    1023,
					  1024,	 1025,	1088,  1999,  2048,  32767,  32768,
					  32769, 65535, 65536, 98304, 99999, 131072, 200003 };
	const uint32_t unit = dtype == TSR_F32 ? 4 : dtype == TSR_U8 ? 1 : 2, aligned = 1u << 18;
	struct tsr_to_sign table[COUNT_OF(sizes)], *device_table;
	struct tsr_signed_piece pieces[64], *device_pieces;
	unsigned char *bytes = (unsigned char *)must_have(malloc(COUNT_OF(sizes) * aligned));
	unsigned char *device_bytes = (unsigned char *)on_device(COUNT_OF(sizes) * aligned);
	struct tsr_signature want[COUNT_OF(sizes)], got[COUNT_OF(sizes)];
	uint64_t npieces = 0;
	struct tsr_err err;

	fill((float *)bytes, COUNT_OF(sizes) * aligned / sizeof(float), data, data + 1);
	for (unsigned i = 0; i < COUNT_OF(sizes); i++) {
		table[i].data = i % 7 == 6 ? NULL : device_bytes + i * aligned;
		table[i].nbytes = sizes[i] / unit * unit;
		table[i].first_piece = npieces;
		table[i].dtype = dtype;
		table[i].index = i;
		npieces += (table[i].nbytes + TSR_SIGN_PIECE - 1) / TSR_SIGN_PIECE;
	}
	expect(npieces <= COUNT_OF(pieces), "room for pieces");
	memset(pieces, 0xee, sizeof(pieces));
	device_table = (struct tsr_to_sign *)on_device(sizeof(table));
	device_pieces = (struct tsr_signed_piece *)on_device(sizeof(pieces));
	copy(device_bytes, bytes, COUNT_OF(sizes) * aligned, cudaMemcpyHostToDevice, m->on);
	copy(device_table, table, sizeof(table), cudaMemcpyHostToDevice, m->on);
	copy(device_pieces, pieces, sizeof(pieces), cudaMemcpyHostToDevice, m->on);
	must(tsr_device_sign(gpu, m->on, device_table, COUNT_OF(sizes), npieces, device_pieces,
			     &err),
	     &err);
	copy(pieces, device_pieces, sizeof(pieces), cudaMemcpyDeviceToHost, m->on);
	tsr_sign_pieces(table, COUNT_OF(sizes), pieces, got);
	for (unsigned i = 0; i < COUNT_OF(sizes); i++) {
		const struct tsr_signed_piece *p = &pieces[table[i].first_piece];

		table[i].data = bytes + i * aligned;
		must(tsr_sign(&table[i], 1, want, NULL, &err), &err);
		if (i % 7 == 6)
			expect(p->hash[0] == 0xee && p->zeros == 0xeeee,
			       "an absent tensor was written");
		else if (table[i].nbytes && memcmp(&want[i], &got[i], sizeof(*got)) != 0)
			check_failed("%s, %u bytes, data %d: another signature",
				     tsr_dtype_name(dtype), sizes[i], (int)data);
	}
	tsr_gpu_free(gpu, device_bytes);
	tsr_gpu_free(gpu, device_table);
	tsr_gpu_free(gpu, device_pieces);
	free(bytes);
	return COUNT_OF(sizes);
}

static void check_signatures(const struct memory *m)
{
	static const enum tsr_dtype dtypes[] = { TSR_F32, TSR_BF16, TSR_F16, TSR_U8 };
	uint64_t n = 0;

	check_begin("signatures of tensors on a caller's stream are the CPU's");
	for (unsigned i = 0; i < COUNT_OF(dtypes); i++) {
		for (unsigned data = 0; data < DATA_COUNT; data++)
			n += check_signed(m, dtypes[i], (enum data)data);
	}
	check_end(n);
}

extern "C" void check_device(enum cases cases)
{
	static const size_t sizes[] = { 1, 31, 4096, MOST };
	struct memory m = {};
	uint64_t n = 0;

	check_begin(
		"codecs on a caller's stream give the CPU's planes, and count what the CPU counts");
	m.x = (float *)must_have(malloc(MOST * sizeof(float)));
	m.v = (float *)must_have(malloc(MOST * sizeof(float)));
	m.back = (float *)must_have(malloc(MOST * sizeof(float)));
	m.got = (unsigned char *)must_have(malloc(8 * MOST));
	m.device_x = (float *)on_device(MOST * sizeof(float));
	m.device_v = (float *)on_device(MOST * sizeof(float));
	m.device_ratios = (float *)on_device(MOST * sizeof(float));
	m.device_found = (struct tsr_device_found *)on_device(sizeof(*m.device_found));
	for (unsigned i = 0; i < TSR_PLANES_MAX; i++) {
		m.want[i] = (unsigned char *)must_have(malloc(8 * MOST));
		m.device_plane[i] = on_device(8 * MOST);
	}
	expect(cudaStreamCreateWithFlags(&m.on, cudaStreamNonBlocking) == cudaSuccess, "a stream");
	for (const struct tsr_codec *const *c = tsr_codecs(); *c; c++) {
		for (unsigned k = cases == CASES_ALL ? 0 : 2;
		     k < COUNT_OF(sizes) - (cases != CASES_ALL); k++) {
			for (unsigned data = 0; data < DATA_COUNT; data++, n++)
				check_one(&m, *c, sizes[k], (enum data)data);
		}
	}
	check_end(n);
	check_signatures(&m);
	cudaStreamDestroy(m.on);
	for (unsigned i = 0; i < TSR_PLANES_MAX; i++) {
		free(m.want[i]);
		tsr_gpu_free(gpu, m.device_plane[i]);
	}
	tsr_gpu_free(gpu, m.device_x);
	tsr_gpu_free(gpu, m.device_v);
	tsr_gpu_free(gpu, m.device_ratios);
	tsr_gpu_free(gpu, m.device_found);
	free(m.x);
	free(m.v);
	free(m.back);
	free(m.got);
}
