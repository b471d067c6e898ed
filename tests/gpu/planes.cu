/* SPDX-License-Identifier: Apache-2.0 */
/* Whole planes coded and decoded on a caller's stream (tersor/device.h): the CPU's pieces behind an index. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime.h>

extern "C" {
#include "check_gpu.h"
#include "tersor/device.h"
}
#include "entropy/contexts_math.h"

#define PIECE TSR_ENTROPY_PIECE
#define MOST 1000u /* planes that are coded together */
#define ENTRY 16u /* bytes of an index for each piece */

/* A plane, and its coded form by the CPU. */
struct plane {
	struct tsr_coding coding;
	struct tsr_device_plane device;
	unsigned char *plain, *coded;
	size_t nbytes, coded_nbytes;
};

static struct plane planes[MOST];
static size_t nplanes;
static cudaStream_t on;

static void *on_device(uint64_t nbytes)
{
	struct tsr_err err;
	void *memory;

	must(tsr_gpu_alloc(gpu, nbytes, "a test plane", &memory, &err), &err);
	return memory;
}

static void copy(void *to, const void *from, size_t nbytes, enum cudaMemcpyKind kind)
{
	expect(cudaMemcpyAsync(to, from, nbytes, kind, on) == cudaSuccess, "copied");
	expect(cudaStreamSynchronize(on) == cudaSuccess, "done");
}

/* --- What the CPU makes -------------------------------------------------------------------------- */

/* Element @first and those behind it, as format.md says, from the tensor's scales. */
static struct tsr_entropy_variance variance_of(const struct plane *p, const void *scales, uint64_t first,
					       size_t n, uint16_t *room)
{
	const struct tsr_coding *c = &p->coding;
	const bool logarithmic = c->codec->contexts == TSR_CONTEXTS_LOGS;
	const uint64_t at = tsr_plane_count(c, 1, first), count = tsr_plane_count(c, 1, n);

	for (uint64_t i = 0; i < count; i++)
		room[i] = logarithmic ? tsr_entropy_log_scale(((const uint32_t *)scales)[at + i])
				      : ((const uint16_t *)scales)[at + i];
	return { first, p->device.columns, { room, c->row, tsr_coding_group(c) }, logarithmic };
}

static void code_on_cpu(struct plane *p, const void *scales)
{
	const struct tsr_coding *c = &p->coding;
	const struct tsr_entropy_kind kind = tsr_entropy_kind(tsr_plane_dtype(c, p->device.which));
	const uint64_t n = p->device.n, piece = PIECE - PIECE % tsr_coding_align(c),
		       npieces = (n + piece - 1) / piece;
	const bool contexts = p->device.which == 0 && scales;
	struct tsr_entropy *e = (struct tsr_entropy *)must_have(tsr_entropy_new(8));
	uint16_t *room = (uint16_t *)must_have(malloc(2 * PIECE));
	uint64_t end = ENTRY * npieces;

	p->coded = (unsigned char *)must_have(calloc(1, end + npieces * tsr_entropy_bound(kind, PIECE) + 1));
	for (uint64_t i = 0; i < npieces; i++) {
		const uint64_t first = i * piece;
		const size_t rest = (size_t)(n - first < piece ? n - first : piece),
			     count = (size_t)tsr_plane_nbytes(c, p->device.which, rest) / kind.width;
		const unsigned char *from = p->plain + tsr_plane_nbytes(c, p->device.which, first);

		if (contexts) {
			const struct tsr_entropy_variance v = variance_of(p, scales, first, rest, room);

			end += tsr_entropy_encode_codes(e, &v, from, count, p->coded + end);
		} else {
			end += tsr_entropy_encode(e, kind, from, count, p->coded + end);
		}
		memcpy(p->coded + ENTRY * i, &end, sizeof(end));
	}
	p->coded_nbytes = (size_t)end;
	tsr_entropy_free(e);
	free(room);
}

/* The planes of a tensor of @n elements like a matrix whose rows and columns differ. */
static void add_tensor(struct tsr_coding coding, uint64_t n, uint64_t columns, enum data data)
{
	const bool contexts = coding.codec->contexts == TSR_CONTEXTS_LOGS
				      ? tsr_coding_group(&coding) > 1
				      : coding.codec->contexts == TSR_CONTEXTS_ROOTS &&
						coding.scale == TSR_SCALE_E8M8;
	float *x = (float *)must_have(malloc((n + 1) * sizeof(*x)));
	void *plain[TSR_PLANES_MAX] = {};
	struct tsr_encode_report report = {};
	struct plane *first = &planes[nplanes];

	fill(x, n, data, n + columns);
	for (uint64_t i = 0; i < n && data == DATA_VARIANCES; i++)
		x[i] = (float)((i / columns % 37 + 1) * (i % columns % 19 + 1)) * (1.0f + x[i]) * 1e-9f;
	for (unsigned i = 0; i < coding.codec->nplanes; i++)
		plain[i] = must_have(calloc(1, tsr_plane_nbytes(&coding, i, n) + 16));
	coding.codec->encode(&coding, x, n, plain, &report);
	expect(nplanes + TSR_PLANES_MAX <= MOST, "there is room for all planes");
	for (unsigned i = 0; i < coding.codec->nplanes; i++) {
		struct plane *p = &planes[nplanes++];

		*p = {};
		p->coding = coding;
		p->plain = (unsigned char *)plain[i];
		p->nbytes = (size_t)tsr_plane_nbytes(&coding, i, n);
		p->device.coding = &p->coding;
		p->device.which = i;
		p->device.n = n;
		p->device.columns = columns;
		p->device.plain = on_device(p->nbytes + 16);
		copy(p->device.plain, p->plain, p->nbytes, cudaMemcpyHostToDevice);
		code_on_cpu(p, contexts ? plain[1] : NULL);
	}
	if (contexts)
		first->device.scales = first[1].device.plain;
	free(x);
}

/* --- What the GPU makes -------------------------------------------------------------------------- */

static const char *name_of(const struct plane *p)
{
	static char text[100];

	snprintf(text, sizeof(text), "%s, %llu elements in rows of %llu, plane %u", p->coding.codec->name,
		 (unsigned long long)p->device.n, (unsigned long long)p->device.columns, p->device.which);
	return text;
}

/* All together, as a job has them: in another order than their kinds. */
static unsigned char *check_coding(struct tsr_device_plane *all, uint64_t *ends)
{
	uint64_t room = 0, begin = 0;
	unsigned char *coded, *host;
	void *scratch, *device_ends = on_device(MOST * sizeof(*ends));
	struct tsr_err err;

	for (size_t i = 0; i < nplanes; i++) {
		all[i] = planes[i].device;
		room += tsr_device_coded_bound(&all[i]);
		if (planes[i].coded_nbytes > tsr_device_coded_bound(&all[i]))
			check_failed("%s: the bound is too low", name_of(&planes[i]));
	}
	scratch = on_device(tsr_device_coding_scratch(gpu, all, nplanes, false) + 1);
	coded = (unsigned char *)on_device(room + 1);
	must(tsr_device_code(gpu, on, all, nplanes, scratch, coded, (uint64_t *)device_ends, &err), &err);
	copy(ends, device_ends, nplanes * sizeof(*ends), cudaMemcpyDeviceToHost);
	host = (unsigned char *)must_have(malloc(room + 1));
	copy(host, coded, room, cudaMemcpyDeviceToHost);
	for (size_t i = 0; i < nplanes; i++) {
		const struct plane *p = &planes[i];

		if (ends[i] - begin != p->coded_nbytes)
			check_failed("%s: %llu bytes, the CPU's has %zu", name_of(p),
				     (unsigned long long)(ends[i] - begin), p->coded_nbytes);
		else if (memcmp(host + begin, p->coded, p->coded_nbytes) != 0)
			check_failed("%s: other bytes", name_of(p));
		all[i].coded = coded + begin;
		all[i].coded_nbytes = p->coded_nbytes;
		begin = (ends[i] + 15) / 16 * 16;
	}
	tsr_gpu_free(gpu, scratch);
	tsr_gpu_free(gpu, device_ends);
	free(host);
	return coded;
}

static bool decodes(const struct tsr_device_plane *all, size_t n)
{
	uint64_t damaged = UINT64_MAX;
	void *found = on_device(sizeof(damaged));
	void *scratch = on_device(tsr_device_coding_scratch(gpu, all, n, true) + 1);
	struct tsr_err err;

	copy(found, &damaged, sizeof(damaged), cudaMemcpyHostToDevice);
	must(tsr_device_uncode(gpu, on, all, n, scratch, (uint64_t *)found, &err), &err);
	copy(&damaged, found, sizeof(damaged), cudaMemcpyDeviceToHost);
	tsr_gpu_free(gpu, scratch);
	tsr_gpu_free(gpu, found);
	return damaged == UINT64_MAX;
}

static void check_decoding(const struct tsr_device_plane *all)
{
	for (size_t i = 0; i < nplanes; i++)
		expect(cudaMemsetAsync(planes[i].device.plain, 0xaa, planes[i].nbytes, on) == cudaSuccess, "set");
	expect(decodes(all, nplanes), "coded planes decode");
	for (size_t i = 0; i < nplanes; i++) {
		unsigned char *back = (unsigned char *)must_have(malloc(planes[i].nbytes + 1));

		copy(back, planes[i].device.plain, planes[i].nbytes, cudaMemcpyDeviceToHost);
		if (memcmp(back, planes[i].plain, planes[i].nbytes) != 0)
			check_failed("%s: other elements", name_of(&planes[i]));
		free(back);
	}
}

/* Indices that point elsewhere; nothing outside is read. */
static void check_damage(const struct tsr_device_plane *plane)
{
	static const uint64_t wrong[] = { 0, 4, 12, 33, UINT64_MAX, UINT64_MAX - 3, UINT64_C(1) << 63 };
	struct tsr_device_plane p = *plane;
	struct tsr_err err;
	uint64_t found = UINT64_MAX;
	const uint64_t npieces = (p.n + PIECE - 1) / PIECE;

	expect(decodes(&p, 1), "an undamaged plane decodes");
	for (uint64_t i = 0; i < npieces; i++) {
		void *entry = (unsigned char *)p.coded + ENTRY * i;
		uint64_t before;

		copy(&before, entry, sizeof(before), cudaMemcpyDeviceToHost);
		for (size_t k = 0; k < COUNT_OF(wrong); k++) {
			copy(entry, &wrong[k], sizeof(before), cudaMemcpyHostToDevice);
			expect(!decodes(&p, 1), "a wrong index is refused");
		}
		copy(entry, &before, sizeof(before), cudaMemcpyHostToDevice);
	}
	p.coded_nbytes -= 4;
	expect(!decodes(&p, 1), "a plane that is too short is refused");
	p.coded_nbytes = ENTRY * npieces - 1;
	expect(tsr_device_uncode(gpu, on, &p, 1, NULL, &found, &err) == TSR_E_FORMAT, "no index");
}

static void free_planes(void)
{
	while (nplanes) {
		const struct plane *p = &planes[--nplanes];

		tsr_gpu_free(gpu, p->device.plain);
		free(p->plain);
		free(p->coded);
	}
}

static uint64_t check_all(bool damage)
{
	struct tsr_device_plane *all = (struct tsr_device_plane *)must_have(calloc(MOST, sizeof(*all)));
	uint64_t *ends = (uint64_t *)must_have(calloc(MOST, sizeof(*ends)));
	unsigned char *coded = check_coding(all, ends);
	const uint64_t n = nplanes;

	check_decoding(all);
	for (size_t i = 0; damage && i < nplanes; i++)
		check_damage(&all[i]);
	free_planes();
	tsr_gpu_free(gpu, coded);
	free(all);
	free(ends);
	return n;
}

/* Every codec, of families some: none, one and many elements, several pieces where these are all that is tested. */
static uint64_t check_every_codec(enum cases cases)
{
	static const uint64_t lengths[] = { 0, 1, 33, 4099, 2 * PIECE + 17 };

	for (const struct tsr_codec *const *c = tsr_codecs(); *c; c++) {
		const bool few = (*c)->family && (*c)->extra_bits % 6 != 1;
		const size_t n = cases == CASES_ALL && !(*c)->family ? 5 : 4;

		for (size_t i = 0; i < n && !few && !(*c)->learned; i++)
			add_tensor(tsr_coding_default(*c), lengths[i], 17, DATA_WEIGHTS);
	}
	return check_all(false);
}

static uint64_t check_contexts(enum cases cases)
{
	static const char *const names[] = { "sqrt8", "log8" };
	const uint64_t many = (cases == CASES_ALL ? 2 : 1) * PIECE + 100003;

	for (size_t i = 0; i < COUNT_OF(names); i++) {
		struct tsr_coding c = tsr_coding_default(tsr_codec_find(names[i]));

		c.kind = TSR_KIND_VARIANCE;
		add_tensor(c, many, 1024, DATA_VARIANCES);
		add_tensor(c, 60000, 300, DATA_VARIANCES);
		add_tensor(c, 5000, 1, DATA_VARIANCES);
		c.row = 300; /* groups that cross no row: pieces are whole rows */
		add_tensor(c, 300 * 800, 300, DATA_VARIANCES);
		c.row = 0;
		c.group = 4;
		add_tensor(c, 70001, 64, DATA_VARIANCES);
	}
	return check_all(false);
}

/* Elements of any bits gain nothing: pieces are stored as they are. */
static uint64_t check_raw(void)
{
	add_tensor(tsr_coding_default(tsr_codec_find("bf16+exact16")), PIECE + 3, 1, DATA_FINITE);
	return check_all(true);
}

/* Pieces of whole rows, of which the second begins where kernels cannot load: the CPU has to code it. */
static void check_refused(void)
{
	struct tsr_coding coding = tsr_coding_default(tsr_codec_find("sqrt8"));
	struct tsr_device_plane p = {};
	struct tsr_err err;

	coding.row = 99;
	p.coding = &coding;
	p.which = 1;
	p.columns = 99;
	p.n = 99 * 2647;
	expect(tsr_device_coded_bound(&p) > 0, "one piece is coded");
	p.n += 99;
	expect(tsr_device_coded_bound(&p) == 0, "two odd pieces are not");
	expect(tsr_device_code(gpu, on, &p, 1, NULL, NULL, NULL, &err) == TSR_E_UNSUPPORTED, "refused");
	expect(tsr_device_uncode(gpu, on, &p, 1, NULL, NULL, &err) == TSR_E_UNSUPPORTED, "refused, too");
	p.n = 0;
	expect(tsr_device_coded_bound(&p) == 0, "no elements are not");
}

extern "C" void check_planes(enum cases cases)
{
	uint64_t n;

	check_begin("planes coded on a caller's stream are the CPU's, and come back");
	expect(cudaStreamCreateWithFlags(&on, cudaStreamNonBlocking) == cudaSuccess, "a stream");
	n = check_every_codec(cases);
	n += check_contexts(cases);
	n += check_raw();
	check_refused();
	cudaStreamDestroy(on);
	check_end(n);
}
