/* SPDX-License-Identifier: Apache-2.0 */
/* Import of the 8-bit states of torchao: codes, a scale per group, and a table unless they are FP8. */
#include "names/import/import_parts.h"

#include <math.h>
#include <string.h>

#include "base/fail.h"
#include "ckpt/checkpoint_model.h"
#include "codec/codebook.h"

/* The array of an attribute, or SIZE_MAX. */
static size_t array_of(const struct tsr_value *v, const char *attribute)
{
	const struct tsr_value *tensor = tsr_value_at(v->tensor.attributes, attribute);

	return tensor && tensor->type == TSR_VALUE_TENSOR ? tensor->tensor.array : SIZE_MAX;
}

/* A codec of its own, with the table that the file has or that FP8 is. */
static enum tsr_status make_codec(const struct tsr_importing *m, const struct tsr_array *codes,
				  size_t qmap, const struct tsr_codec **ret)
{
	struct tsr_codebook *book;
	const struct tsr_array *table;

	TSR_TRY(TSR_ARENA_NEW(&book, 1, m->c->arena, tsr_build_nomem(m->c, m->err)));
	tsr_codebook_init(book);
	book->codec.source = "torchao";
	*ret = &book->codec;
	if (codes->dtype == TSR_F8_E4M3) {
		book->codec.name = "fp8";
		book->codec.summary = "FP8 E4M3, with a scale per group";
		book->codec.planes[0].dtype = TSR_F8_E4M3;
		/* FP8 E4M3: exponent 15 has numbers too, and NaN only where all bits are set. */
		for (unsigned code = 0; code < 256; code++) {
			const unsigned exponent = code >> 3 & 15, fraction = code & 7;
			const float magnitude = exponent ? ldexpf((float)(8 + fraction),
								  (int)exponent - 10)
							 : ldexpf((float)fraction, -9);

			book->table[code] = (code & 0x7f) == 0x7f ? NAN
					    : code & 0x80	  ? -magnitude
								  : magnitude;
		}
		return TSR_OK;
	}
	table = qmap == SIZE_MAX ? NULL : &m->c->arrays[qmap];
	if (!table || table->dtype != TSR_F32 || table->numel != 256)
		return tsr_fail(m->err, TSR_E_UNSUPPORTED,
				"%s: tensor %.200s: found 8-bit codes of torchao without a table "
				"of 256 F32",
				m->c->path, codes->name);
	return tsr_array_read(m->c, table, 0, sizeof(book->table), book->table, m->err);
}

enum tsr_status tsr_import_torchao(struct tsr_importing *m, struct tsr_value *v)
{
	const char *class = v->tensor.wrapper->list.items[0]->global.name;
	const size_t i = v->tensor.array, scales = array_of(v, "scale"), qmap = array_of(v, "qmap");
	const struct tsr_array *a = &m->c->arrays[i];
	struct tsr_coding coding = { .scale = TSR_SCALE_F32 };
	const bool fp8 = strcmp(class, "OptimStateFp8") == 0;

	if (!fp8 && strcmp(class, "OptimState8bit") != 0)
		return TSR_OK;
	if (a->dtype != (fp8 ? TSR_F8_E4M3 : TSR_U8) || scales == SIZE_MAX)
		return tsr_fail(m->err, TSR_E_UNSUPPORTED,
				"%s: tensor %.200s: found codes of %s for %s of torchao%s",
				m->c->path, a->name, tsr_dtype_name(a->dtype), class,
				scales == SIZE_MAX ? ", and no scales" : "");
	coding.group = tsr_import_block(a, &m->c->arrays[scales]);
	if (!coding.group || m->c->arrays[scales].dtype != TSR_F32)
		return tsr_import_bad_scales(m, a, &m->c->arrays[scales]);
	TSR_TRY(make_codec(m, a, qmap, &coding.codec));
	tsr_import_join(m, i, scales, coding);
	if (qmap != SIZE_MAX)
		m->part[qmap] = true;
	v->tensor.attributes = NULL;
	v->tensor.wrapper = NULL;
	return TSR_OK;
}
