/* SPDX-License-Identifier: Apache-2.0 */
/* Import of the 8-bit and 4-bit states of torchao: codes, a scale per group, a table unless they are FP8. */
#include "names/import/import_parts.h"

#include <math.h>

#include "base/fail.h"
#include "ckpt/checkpoint_model.h"
#include "codec/codebook.h"
#include "codec/tables.h"
#include "text/shape.h"

/* The array of an attribute, or SIZE_MAX. */
static size_t array_of(const struct tsr_value *v, const char *attribute)
{
	const struct tsr_value *tensor = tsr_value_at(v->tensor.attributes, attribute);

	return tensor && tensor->type == TSR_VALUE_TENSOR ? tensor->tensor.array : SIZE_MAX;
}

/* The arguments of a wrapper that are needed. */
enum { CLASS, SIZE = 2 };

static const char *class_of(const struct tsr_value *v)
{
	return v->tensor.wrapper->list.items[CLASS]->global.name;
}

/* Two codes are in a byte, flat: the array becomes one of the tensor's shape. */
static enum tsr_status unfold(struct tsr_checkpoint *c, const struct tsr_value *v,
			      struct tsr_err *err)
{
	const struct tsr_value *size = v->tensor.wrapper->list.items[SIZE];
	struct tsr_array *a = &c->arrays[v->tensor.array];
	const unsigned rank = (unsigned)size->list.n;
	uint64_t shape[TSR_RANK_MAX], numel;
	bool valid = size->list.n <= TSR_RANK_MAX;

	for (unsigned d = 0; valid && d < rank; d++)
		valid = tsr_value_get_u64(size->list.items[d], &shape[d]);
	if (!valid || a->dtype != TSR_U8 || !tsr_shape_numel(rank, shape, &numel) || numel % 2 ||
	    numel / 2 != a->numel)
		return tsr_fail(err, TSR_E_UNSUPPORTED,
				"%s: tensor %.200s: found %" PRIu64 " codes of %s, expected U8 for "
				"two elements each",
				c->path, a->name, a->numel, tsr_dtype_name(a->dtype));
	if (a->layout) /* whose elements are bytes */
		return tsr_fail(
			err, TSR_E_UNSUPPORTED,
			"%s: tensor %.200s: found 4-bit codes that are a view of other data, "
			"expected a storage of their own",
			c->path, a->name);
	a->shape = tsr_arena_dup(c->arena, shape, rank * sizeof(*shape));
	if (!a->shape)
		return tsr_build_nomem(c, err);
	a->rank = rank;
	a->numel = numel;
	a->dtype = TSR_F4;
	a->stride = NULL;
	return TSR_OK;
}

enum tsr_status tsr_import_torchao_shapes(struct tsr_checkpoint *c,
					  const struct tsr_value *optimizer, struct tsr_err *err)
{
	const struct tsr_value *states = tsr_value_mapping(tsr_value_at(optimizer, "state"));

	for (size_t i = 0; states && i + 1 < states->list.n; i += 2) {
		const struct tsr_value *state = tsr_value_mapping(states->list.items[i + 1]);

		for (size_t k = 0; state && k + 1 < state->list.n; k += 2) {
			const struct tsr_value *v = state->list.items[k + 1];

			if (v->type == TSR_VALUE_TENSOR && v->tensor.wrapper &&
			    strcmp(class_of(v), "OptimState4bit") == 0)
				TSR_TRY(unfold(c, v, err));
		}
	}
	return TSR_OK;
}

/* A codec of its own, with the table that the file has or that FP8 is. */
static enum tsr_status make_codec(const struct tsr_importing *m, const struct tsr_array *codes,
				  size_t qmap, const struct tsr_codec **ret)
{
	const bool halves = codes->dtype == TSR_F4;
	const uint64_t n = halves ? 16 : 256;
	struct tsr_codebook *book;
	const struct tsr_array *table;

	TSR_TRY(TSR_ARENA_NEW(&book, 1, m->c->arena, tsr_build_nomem(m->c, m->err)));
	tsr_codebook_init(book, halves);
	book->codec.source = "torchao";
	*ret = &book->codec;
	if (codes->dtype == TSR_F8_E4M3) {
		book->codec.name = "fp8";
		book->codec.summary = "FP8 E4M3, with a scale per group";
		book->codec.planes[0].dtype = TSR_F8_E4M3;
		for (unsigned code = 0; code < 256; code++) {
			const struct tsr_fp8_value v = tsr_fp8_value(tsr_fp8_e4m3, code & 0x7f);
			const float magnitude = ldexpf((float)v.whole, v.exponent);

			book->table[code] = (code & 0x7f) >= tsr_fp8_e4m3.ncodes ? NAN
					    : code & 0x80			 ? -magnitude
										 : magnitude;
		}
		return TSR_OK;
	}
	table = qmap == SIZE_MAX ? NULL : &m->c->arrays[qmap];
	if (!table || table->dtype != TSR_F32 || table->numel != n)
		return tsr_fail(m->err, TSR_E_UNSUPPORTED,
				"%s: tensor %.200s: found codes of torchao without a table of "
				"%" PRIu64 " F32",
				m->c->path, codes->name, n);
	return tsr_array_read(m->c, table, 0, n * sizeof(*book->table), book->table, m->err);
}

enum tsr_status tsr_import_torchao(struct tsr_importing *m, struct tsr_value *v)
{
	const char *class = class_of(v);
	const size_t i = v->tensor.array, scales = array_of(v, "scale"), qmap = array_of(v, "qmap");
	const struct tsr_array *a = &m->c->arrays[i];
	struct tsr_coding coding = { .scale = TSR_SCALE_F32 };
	const bool fp8 = strcmp(class, "OptimStateFp8") == 0;
	const bool halves = strcmp(class, "OptimState4bit") == 0;

	if (!fp8 && !halves && strcmp(class, "OptimState8bit") != 0)
		return TSR_OK;
	if (a->dtype != (fp8 ? TSR_F8_E4M3 : halves ? TSR_F4 : TSR_U8) || scales == SIZE_MAX)
		return tsr_fail(m->err, TSR_E_UNSUPPORTED,
				"%s: tensor %.200s: found codes of %s for %s of torchao%s",
				m->c->path, a->name, tsr_dtype_name(a->dtype), class,
				scales == SIZE_MAX ? ", and no scales" : "");
	coding.group = tsr_import_block(a, &m->c->arrays[scales]);
	if (!coding.group || (halves && coding.group % 2) || m->c->arrays[scales].dtype != TSR_F32)
		return tsr_import_bad_scales(m, a, &m->c->arrays[scales]);
	TSR_TRY(make_codec(m, a, qmap, &coding.codec));
	tsr_import_join(m, i, scales, coding);
	if (qmap != SIZE_MAX)
		m->part[qmap] = true;
	v->tensor.attributes = NULL;
	v->tensor.wrapper = NULL;
	return TSR_OK;
}
