/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The compressed states of other tools, as tensors that decode to FP32: FlashOptim, bitsandbytes,
 * and the 16-bit remainders of TransformerEngine and Apex.  docs/containers.md has their layouts.
 */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "codec/codebook.h"
#include "names/foreign.h"

struct foreign {
	struct tsr_checkpoint *c;
	size_t *by_name; /* indices of arrays */
	bool *part; /* per array: whether it is part of another array's tensor, or used up */
	struct tsr_coding *coding; /* per array: of the tensor whose first plane it is */
	size_t *second; /* per array: the tensor's second plane */
	struct tsr_err *err;
};

static int compare_names(const void *va, const void *vb, void *arrays)
{
	const struct tsr_array *a = arrays;

	return strcmp(a[*(const size_t *)va].name, a[*(const size_t *)vb].name);
}

/* The array whose name is the first @len bytes of @name and @suffix, or SIZE_MAX. */
static size_t find(const struct foreign *f, const char *name, size_t len, const char *suffix)
{
	size_t low = 0, high = f->c->narrays;

	while (low < high) {
		const size_t mid = low + (high - low) / 2;
		const char *at = f->c->arrays[f->by_name[mid]].name;
		int order = strncmp(at, name, len);

		order = order ? order : strcmp(at + len, suffix);
		if (order == 0)
			return f->by_name[mid];
		if (order < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return SIZE_MAX;
}

/* Where @suffix starts at the end of @name, or NULL. */
static const char *at_suffix(const char *name, const char *suffix)
{
	const size_t n = strlen(name), len = strlen(suffix);

	return n > len && strcmp(name + n - len, suffix) == 0 ? name + n - len : NULL;
}

static bool same_shape(const struct tsr_array *a, const struct tsr_array *b)
{
	return a->rank == b->rank &&
	       (!a->rank || memcmp(a->shape, b->shape, a->rank * sizeof(*a->shape)) == 0);
}

static void make(struct foreign *f, size_t first, size_t second, struct tsr_coding coding)
{
	f->coding[first] = coding;
	f->second[first] = second;
	f->part[second] = true;
}

/* --- Weights: a narrow weight of the model and what the optimizer keeps of it ------------------ */

/* The codec that joins them, or NULL. */
static const struct tsr_codec *weight_codec(enum tsr_dtype narrow, enum tsr_dtype rest,
					    bool remainder)
{
	if (remainder)
		return narrow == TSR_BF16 && rest == TSR_I16 ? tsr_codec_find("bf16+exact16")
							     : NULL;
	if (narrow == TSR_BF16 && rest == TSR_I8)
		return tsr_codec_find("bf16+ulp8");
	if (narrow == TSR_BF16 && rest == TSR_I16)
		return tsr_codec_find("bf16+ulp16");
	if (narrow == TSR_F16 && rest == TSR_I8)
		return tsr_codec_find("fp16+ulp8");
	if (narrow == TSR_F16 && rest == TSR_I16)
		return tsr_codec_find("fp16+ulp16");
	return NULL;
}

static enum tsr_status try_weight(struct foreign *f, size_t rest, const char *suffix,
				  bool remainder)
{
	const struct tsr_array *a = &f->c->arrays[rest];
	const char *at = at_suffix(a->name, suffix);
	const size_t weight = at ? find(f, a->name, (size_t)(at - a->name), "") : SIZE_MAX;
	const struct tsr_codec *codec;

	if (weight == SIZE_MAX || f->coding[weight].codec)
		return TSR_OK;
	codec = weight_codec(f->c->arrays[weight].dtype, a->dtype, remainder);
	if (!codec)
		return TSR_OK;
	if (!same_shape(a, &f->c->arrays[weight]))
		return tsr_fail(f->err, TSR_E_FORMAT,
				"%s: tensor %.200s: has another shape than its weight %.200s",
				f->c->path, a->name, f->c->arrays[weight].name);
	make(f, weight, rest, (struct tsr_coding){ .codec = codec, .group = 1 });
	return TSR_OK;
}

/* --- States ------------------------------------------------------------------------------------ */

/* The group of @n elements in @ngroups groups: the least power of two that gives so many; or 0. */
static uint32_t group_of(uint64_t n, uint64_t ngroups)
{
	for (uint32_t group = 1; group <= TSR_GROUP_MAX && ngroups; group *= 2) {
		if (n / group + (n % group != 0) == ngroups)
			return group;
	}
	return 0;
}

static enum tsr_status bad_scales(const struct foreign *f, const struct tsr_array *codes,
				  const struct tsr_array *scales)
{
	return tsr_fail(f->err, TSR_E_UNSUPPORTED,
			"%s: tensor %.200s: found %llu scales of %s for %llu codes of %s, expected "
			"one per group",
			f->c->path, codes->name, (unsigned long long)scales->numel,
			tsr_dtype_name(scales->dtype), (unsigned long long)codes->numel,
			tsr_dtype_name(codes->dtype));
}

/* FlashOptim: NAME::quantized and NAME::scales; groups of 32. */
static enum tsr_status try_quantized(struct foreign *f, size_t i)
{
	struct tsr_array *a = &f->c->arrays[i];
	const char *at = at_suffix(a->name, "::quantized");
	struct tsr_coding coding = { .scale = TSR_SCALE_F16, .group = TSR_GROUP_DEFAULT };
	struct tsr_array *s;
	const char *name;
	size_t scales;

	if (!at)
		return TSR_OK;
	scales = find(f, a->name, (size_t)(at - a->name), "::scales");
	if (scales == SIZE_MAX)
		return tsr_fail(f->err, TSR_E_UNSUPPORTED,
				"%s: tensor %.200s: found codes without their ::scales", f->c->path,
				a->name);
	s = &f->c->arrays[scales];
	/* Later versions call the scales of BF16 weights BF16, so that torch does not round them. */
	s->dtype = s->dtype == TSR_BF16 ? TSR_F16 : s->dtype;
	if ((a->dtype != TSR_I8 && a->dtype != TSR_U8) || s->dtype != TSR_F16 ||
	    s->numel != a->numel / coding.group + (a->numel % coding.group != 0))
		return bad_scales(f, a, s);
	coding.codec = tsr_codec_find(a->dtype == TSR_I8 ? "softsign8" : "sqrt8");
	name = tsr_arena_copy(f->c->arena, a->name, (size_t)(at - a->name));
	if (!name)
		return tsr_build_nomem(f->c, f->err);
	make(f, i, scales, coding);
	a->name = name;
	return TSR_OK;
}

/* bitsandbytes: NAME.state1, NAME.qmap1 and NAME.absmax1; the same with 2 for the variance. */
static enum tsr_status try_table(struct foreign *f, size_t i, const char *state, const char *qmap,
				 const char *absmax)
{
	const struct tsr_array *a = &f->c->arrays[i];
	const char *at = at_suffix(a->name, state);
	const size_t len = at ? (size_t)(at - a->name) : 0;
	struct tsr_coding coding = { .scale = TSR_SCALE_F32 };
	struct tsr_codebook *book;
	size_t table, scales;

	if (!at || a->dtype != TSR_U8)
		return TSR_OK;
	table = find(f, a->name, len, qmap);
	scales = find(f, a->name, len, absmax);
	if (table == SIZE_MAX || scales == SIZE_MAX)
		return tsr_fail(f->err, TSR_E_UNSUPPORTED,
				"%s: tensor %.200s: found 8-bit codes, expected %s and %s beside "
				"them",
				f->c->path, a->name, qmap, absmax);
	if (f->c->arrays[table].dtype != TSR_F32 || f->c->arrays[table].numel != 256)
		return tsr_fail(f->err, TSR_E_UNSUPPORTED,
				"%s: tensor %.200s: found %llu of %s, expected a table of 256 F32",
				f->c->path, f->c->arrays[table].name,
				(unsigned long long)f->c->arrays[table].numel,
				tsr_dtype_name(f->c->arrays[table].dtype));
	coding.group = group_of(a->numel, f->c->arrays[scales].numel);
	if (!coding.group || f->c->arrays[scales].dtype != TSR_F32)
		return bad_scales(f, a, &f->c->arrays[scales]);
	book = tsr_arena_alloc(f->c->arena, sizeof(*book));
	if (!book)
		return tsr_build_nomem(f->c, f->err);
	tsr_codebook_init(book);
	TSR_TRY(tsr_array_read(f->c, &f->c->arrays[table], 0, sizeof(book->table), book->table,
			       f->err));
	coding.codec = &book->codec;
	make(f, i, scales, coding);
	f->part[table] = true;
	return TSR_OK;
}

static enum tsr_status recognise(struct foreign *f)
{
	for (size_t i = 0; i < f->c->narrays; i++) {
		TSR_TRY(try_table(f, i, ".state1", ".qmap1", ".absmax1"));
		TSR_TRY(try_table(f, i, ".state2", ".qmap2", ".absmax2"));
		TSR_TRY(try_weight(f, i, ".error_bits", false));
		TSR_TRY(try_weight(f, i, ".master_param", true));
	}
	/* These change names, by which the others are found. */
	for (size_t i = 0; i < f->c->narrays; i++)
		TSR_TRY(try_quantized(f, i));
	return TSR_OK;
}

/* --- The tree ---------------------------------------------------------------------------------- */

/* Values whose parts were taken out. */
#define MARK_CLEANED 2u

static bool is_part(const struct foreign *f, const struct tsr_value *v)
{
	return v->type == TSR_VALUE_TENSOR && f->part[v->tensor.array];
}

/* "exp_avg::quantized" becomes "exp_avg". */
static enum tsr_status clean_key(struct foreign *f, struct tsr_value **key)
{
	const char *at = (*key)->type == TSR_VALUE_STRING
				 ? at_suffix((*key)->text.bytes, "::quantized")
				 : NULL;

	if (!at)
		return TSR_OK;
	*key = tsr_value_text(f->c->arena, TSR_VALUE_STRING, (*key)->text.bytes,
			      (size_t)(at - (*key)->text.bytes));
	return *key ? TSR_OK : tsr_build_nomem(f->c, f->err);
}

/* Parts of tensors go; what they were part of is a tensor of its own. */
static enum tsr_status clean(struct foreign *f, struct tsr_value *v)
{
	size_t kept = 0;

	if (!v || v->mark == MARK_CLEANED)
		return TSR_OK;
	v->mark = MARK_CLEANED;
	if (v->type == TSR_VALUE_CALL) {
		TSR_TRY(clean(f, v->call.args));
		return clean(f, v->call.items);
	}
	if (v->type == TSR_VALUE_DICT) {
		for (size_t i = 0; i + 1 < v->list.n; i += 2) {
			struct tsr_value **pair = &v->list.items[i];

			if (is_part(f, pair[1]))
				continue;
			if (pair[1]->type == TSR_VALUE_TENSOR &&
			    f->coding[pair[1]->tensor.array].codec)
				TSR_TRY(clean_key(f, &pair[0]));
			v->list.items[kept++] = pair[0];
			v->list.items[kept++] = pair[1];
		}
		v->list.n = kept;
	}
	if (v->type == TSR_VALUE_DICT || v->type == TSR_VALUE_LIST || v->type == TSR_VALUE_TUPLE) {
		for (size_t i = 0; i < v->list.n; i++)
			TSR_TRY(clean(f, v->list.items[i]));
	}
	return TSR_OK;
}

/* --- Tensors ----------------------------------------------------------------------------------- */

static enum tsr_status add_tensor(struct foreign *f, size_t i)
{
	const struct tsr_array *a = &f->c->arrays[i];
	struct tsr_tensor t = { .name = a->name,
				.dtype = a->dtype,
				.rank = a->rank,
				.shape = a->shape,
				.numel = a->numel,
				.coding = { .group = 1 },
				.nplanes = 1,
				.plane = { i } };

	if (f->coding[i].codec) {
		t.dtype = TSR_F32;
		t.coding = f->coding[i];
		t.nplanes = 2;
		t.plane[1] = f->second[i];
		f->c->coded = true;
	}
	return tsr_build_tensor(f->c, &t, f->err);
}

static enum tsr_status make_tensors(struct foreign *f, bool as_stored)
{
	struct tsr_checkpoint *c = f->c;

	if (c->ntrees && !as_stored) {
		for (size_t i = 0; i < c->narrays; i++)
			f->by_name[i] = i;
		if (c->narrays)
			qsort_r(f->by_name, c->narrays, sizeof(*f->by_name), compare_names,
				c->arrays);
		TSR_TRY(recognise(f));
		for (size_t i = 0; i < c->ntrees; i++)
			TSR_TRY(clean(f, c->trees[i]));
	}
	for (size_t i = 0; i < c->narrays; i++) {
		if (!f->part[i])
			TSR_TRY(add_tensor(f, i));
	}
	if (c->coded && !c->generation)
		c->generation = 1;
	return TSR_OK;
}

enum tsr_status tsr_foreign_tensors(struct tsr_checkpoint *c,
				    const struct tsr_open_options *options, struct tsr_err *err)
{
	struct foreign f = { .c = c, .err = err };
	const size_t n = c->narrays + 1;
	enum tsr_status status;

	f.by_name = calloc(n, sizeof(*f.by_name));
	f.part = calloc(n, sizeof(*f.part));
	f.coding = calloc(n, sizeof(*f.coding));
	f.second = calloc(n, sizeof(*f.second));
	status = f.by_name && f.part && f.coding && f.second ? make_tensors(&f, options->as_stored)
							     : tsr_fail_nomem(err, c->path);
	free(f.by_name);
	free(f.part);
	free(f.coding);
	free(f.second);
	return status;
}
