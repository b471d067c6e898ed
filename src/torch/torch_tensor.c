/* SPDX-License-Identifier: Apache-2.0 */
/* What the calls that rebuild a tensor say, checked against the record of its storage. */
#include <stdio.h>

#include "base/fail.h"
#include "ckpt/checkpoint_model.h"
#include "text/bytes.h"
#include "text/shape.h"
#include "torch/torch_archive.h"
#include "format/value_walk.h"

/* The arguments of _rebuild_tensor_v2; _v3 has the type behind them.  Metadata may follow. */
enum { STORAGE, OFFSET, SIZE, STRIDE, REQUIRES_GRAD, HOOKS, ARG_COUNT };

#define KEY_DIGITS_MAX 10u

/* A tensor being read. */
struct building {
	struct tsr_torch_archive *a;
	const char *at; /* the keys that lead to it */
	struct tsr_torch_view *v;
};

static enum tsr_status bad(const struct building *b, const char *what,
			   const struct tsr_value *found, const char *expected)
{
	char text[TSR_VALUE_DESCRIBED];

	return tsr_torch_fail(b->a, TSR_E_FORMAT, b->at, "%s: found %s, expected %s", what,
			      tsr_value_describe(found, text), expected);
}

static bool is_v3(const struct tsr_value *call)
{
	return tsr_value_is_call(call, "torch._utils", "_rebuild_tensor_v3");
}

/* In the place of a tensor of a running job. */
static bool is_hole(const struct tsr_value *call)
{
	return tsr_value_is_call(call, "tersor.structure", "hole");
}

bool tsr_torch_is_tensor(const struct tsr_value *v)
{
	return tsr_value_is_call(v, "torch._utils", "_rebuild_tensor_v2") || is_v3(v) || is_hole(v);
}

/* --- The storage ---------------------------------------------------------------------------- */

/* What a message calls the elements of a storage. */
static const char *elements(const struct tsr_torch_dtype *dtype)
{
	return dtype ? dtype->name : "untyped bytes";
}

/* NULL in *ret is an untyped storage, which _rebuild_tensor_v3 has and _v2 has not. */
static enum tsr_status read_class(const struct building *b, const struct tsr_value *class, bool v3,
				  const struct tsr_torch_dtype **ret)
{
	const char *module = class->global.module, *name = class->global.name;
	const bool untyped = strcmp(name, "UntypedStorage") == 0 &&
			     (strcmp(module, "torch.storage") == 0 || strcmp(module, "torch") == 0);

	*ret = strcmp(module, "torch") == 0 ? tsr_torch_dtype_by_storage(name) : NULL;
	if (v3 ? untyped : *ret != NULL)
		return TSR_OK;
	return tsr_torch_fail(b->a, TSR_E_UNSUPPORTED, b->at,
			      "found a storage of class %s.%s, expected %s", module, name,
			      v3 ? "torch.storage.UntypedStorage"
				 : "one whose type safetensors knows (torch.FloatStorage, ...)");
}

/* Whether a key is safe in the name of a member: digits only. */
static bool is_key(const struct tsr_value *v)
{
	uint64_t number;

	return v->type == TSR_VALUE_STRING && v->text.nbytes <= KEY_DIGITS_MAX &&
	       tsr_digits(v->text.bytes, v->text.nbytes, UINT64_MAX, &number);
}

/* Find the bytes of a member; what is deflated is inflated when it is read. */
static enum tsr_status locate(const struct building *b, const struct tsr_zip_member *m,
			      struct tsr_torch_record *r)
{
	struct tsr_checkpoint *c = b->a->c;
	struct tsr_file *scratch = NULL;

	c->nunchecked += !m->has_crc;
	r->nbytes = m->nbytes;
	r->file = b->a->file;
	r->offset = m->offset;
	r->has_crc = m->has_crc;
	r->crc = m->crc;
	if (!m->deflated)
		return TSR_OK;
	TSR_TRY(tsr_zip_inflated(c->files[b->a->file], m, b->a->where, &scratch, b->a->err));
	r->offset = 0;
	r->has_crc = false; /* it is checked then */
	return tsr_build_file(c, scratch, &r->file, b->a->err);
}

/* A record must hold exactly what its storage is said to have: torch reads past a short one. */
static enum tsr_status check_record(const struct building *b, const char *name,
				    const struct tsr_zip_member *m,
				    const struct tsr_torch_dtype *dtype, uint64_t numel)
{
	const uint64_t item = dtype ? tsr_dtype_bits(dtype->dtype) / 8 : 1;
	uint64_t nbytes;

	if (!__builtin_mul_overflow(numel, item, &nbytes) && nbytes == m->nbytes)
		return TSR_OK;
	return tsr_torch_fail(b->a, TSR_E_FORMAT, b->at,
			      "record %s: found %" PRIu64 " bytes, expected %" PRIu64
			      " elements of %s",
			      name, m->nbytes, numel, elements(dtype));
}

static enum tsr_status read_record(const struct building *b, const char *name,
				   const struct tsr_torch_dtype *dtype, uint64_t numel)
{
	struct tsr_torch_archive *a = b->a;
	const struct tsr_zip_member *m = tsr_torch_find(a, name);
	struct tsr_torch_record *r;

	if (!m)
		return tsr_torch_fail(a, TSR_E_FORMAT, b->at,
				      "found no record %s in the archive for its storage", name);
	b->v->member = (size_t)(m - a->zip->members);
	r = &a->records[b->v->member];
	if (!a->used[b->v->member]) {
		TSR_TRY(check_record(b, name, m, dtype, numel));
		TSR_TRY(locate(b, m, r));
		r->dtype = dtype;
		r->numel = numel;
		a->used[b->v->member] = true;
	} else if (r->dtype != dtype || r->numel != numel) {
		return tsr_torch_fail(a, TSR_E_FORMAT, b->at,
				      "record %s: found a storage of %" PRIu64
				      " elements of %s, expected %" PRIu64
				      " of %s as another tensor has it",
				      name, numel, elements(dtype), r->numel, elements(r->dtype));
	}
	b->v->record = *r;
	return TSR_OK;
}

/* The tuple ('storage', class, key, location, numel) behind a persistent id. */
static enum tsr_status read_storage(const struct building *b, const struct tsr_value *v, bool v3)
{
	const struct tsr_value *id = v->type == TSR_VALUE_PERSISTENT ? v->inner : NULL;
	struct tsr_value *const *items = id && id->type == TSR_VALUE_TUPLE ? id->list.items : NULL;
	const struct tsr_torch_dtype *dtype = NULL;
	char name[sizeof("data/") + KEY_DIGITS_MAX];
	uint64_t numel;

	if (!items || id->list.n != 5 || !tsr_value_is_string(items[0], "storage") ||
	    items[1]->type != TSR_VALUE_GLOBAL)
		return tsr_torch_fail(b->a, TSR_E_FORMAT, b->at,
				      "found no storage, expected a persistent id of 'storage', "
				      "class, key, location and number of elements");
	TSR_TRY(read_class(b, items[1], v3, &dtype));
	if (!is_key(items[2]))
		return bad(b, "key of its storage", items[2], "a string of 1 to 10 digits");
	if (!tsr_value_get_u64(items[4], &numel))
		return bad(b, "number of elements of its storage", items[4],
			   "an int from 0 to 2^64-1");
	snprintf(name, sizeof(name), "data/%s", items[2]->text.bytes);
	return read_record(b, name, dtype, numel);
}

/* --- The view ------------------------------------------------------------------------------- */

/* Sizes or strides; *n_ret numbers, each at most @most. */
static enum tsr_status read_numbers(const struct building *b, const char *what,
				    const struct tsr_value *v, uint64_t most, uint64_t *out,
				    unsigned *n_ret)
{
	char which[40];

	if (v->type != TSR_VALUE_TUPLE)
		return bad(b, what, v, "a tuple");
	if (v->list.n > TSR_RANK_MAX)
		return tsr_torch_fail(b->a, TSR_E_LIMIT, b->at,
				      "%s: %zu dimensions are over the limit of %u", what,
				      v->list.n, TSR_RANK_MAX);
	for (size_t i = 0; i < v->list.n; i++) {
		if (tsr_value_get_u64(v->list.items[i], &out[i]) && out[i] <= most)
			continue;
		snprintf(which, sizeof(which), "%s, dimension %zu", what, i);
		return bad(b, which, v->list.items[i],
			   most == UINT64_MAX ? "an int from 0 to 2^64-1"
					      : "an int from 0 to 2^48-1");
	}
	*n_ret = (unsigned)v->list.n;
	return TSR_OK;
}

/* Elements of the tensor, and their bytes. */
static enum tsr_status measure(const struct building *b)
{
	struct tsr_torch_view *v = b->v;
	uint64_t nbits;

	if (!tsr_shape_numel(v->rank, v->shape, &v->numel) ||
	    __builtin_mul_overflow(v->numel, (uint64_t)tsr_dtype_bits(v->dtype), &nbits))
		return tsr_torch_fail(b->a, TSR_E_LIMIT, b->at,
				      "shape is over the limit of 2^64 bits");
	v->nbytes = nbits / 8;
	return TSR_OK;
}

/* The element with the highest index must be in the storage. */
static enum tsr_status check_bounds(const struct building *b)
{
	const struct tsr_torch_view *v = b->v;
	const uint64_t item = tsr_dtype_bits(v->dtype) / 8, room = v->record.nbytes / item;
	uint64_t last = v->first, step;

	if (!v->numel)
		return TSR_OK;
	for (unsigned d = 0; d < v->rank; d++) {
		if (__builtin_mul_overflow(v->shape[d] - 1, v->stride[d], &step) ||
		    __builtin_add_overflow(last, step, &last))
			last = UINT64_MAX;
		if (last == UINT64_MAX)
			break;
	}
	if (last < room)
		return TSR_OK;
	return tsr_torch_fail(
		b->a, TSR_E_FORMAT, b->at,
		"its last element is number %" PRIu64
		" of its storage or beyond, counted from 0, expected it within the %" PRIu64
		" elements of the record",
		last, room);
}

/* Strides of 0 expand a small record: an archive bomb, if there is no limit. */
static enum tsr_status check_expansion(const struct building *b)
{
	const uint64_t stored = b->v->record.nbytes;

	if (b->v->nbytes <= TSR_TORCH_EXPANSION_FREE ||
	    (b->v->nbytes - TSR_TORCH_EXPANSION_FREE) / TSR_TORCH_EXPANSION_MAX <= stored)
		return TSR_OK;
	return tsr_torch_fail(b->a, TSR_E_LIMIT, b->at,
			      "%" PRIu64 " bytes out of a storage of %" PRIu64
			      " are over the limit of %u times and 1 MiB",
			      b->v->nbytes, stored, TSR_TORCH_EXPANSION_MAX);
}

/* Strides that do not matter become those of a contiguous tensor, so that equal views compare equal. */
static void settle_strides(struct tsr_torch_view *v)
{
	uint64_t step = 1;

	v->contiguous = true;
	memcpy(v->given, v->stride, sizeof(v->given));
	for (unsigned d = v->rank; d-- > 0;) {
		if (!v->numel || v->shape[d] == 1)
			v->stride[d] = step;
		v->contiguous = v->contiguous && v->stride[d] == step;
		step *= v->shape[d] ? v->shape[d] : 1;
	}
	if (!v->numel)
		v->first = 0;
}

static enum tsr_status read_dtype(const struct building *b, const struct tsr_value *v)
{
	const struct tsr_torch_dtype *dtype = tsr_torch_dtype_by_value(v);
	char text[TSR_VALUE_DESCRIBED];

	if (!dtype)
		return tsr_torch_fail(b->a, TSR_E_UNSUPPORTED, b->at,
				      "found type %s, expected one that safetensors knows",
				      tsr_value_describe(v, text));
	b->v->dtype = dtype->dtype;
	return TSR_OK;
}

/* --- What else a tensor can have ------------------------------------------------------------ */

bool tsr_torch_no_hooks(const struct tsr_value *v)
{
	return tsr_value_is_call(v, "collections", "OrderedDict") && !v->call.is_new &&
	       !v->call.state && !v->call.args->list.n &&
	       (!v->call.items || !v->call.items->list.n);
}

/* Flags that change what the elements mean. */
static enum tsr_status check_metadata(const struct building *b, const struct tsr_value *v)
{
	char text[TSR_VALUE_DESCRIBED];

	if (v->type == TSR_VALUE_NONE)
		return TSR_OK;
	if (v->type != TSR_VALUE_DICT)
		return bad(b, "metadata", v, "a dict");
	for (size_t i = 0; i + 1 < v->list.n; i += 2) {
		const struct tsr_value *key = v->list.items[i], *value = v->list.items[i + 1];
		const bool known = tsr_value_is_string(key, "conj") ||
				   tsr_value_is_string(key, "neg");

		if (known && value->type == TSR_VALUE_BOOL && !value->boolean)
			continue;
		return tsr_torch_fail(b->a, TSR_E_UNSUPPORTED, b->at,
				      "found metadata %s that is set, expected a tensor whose "
				      "elements are what is stored",
				      tsr_value_describe(key, text));
	}
	return TSR_OK;
}

static enum tsr_status read_arguments(const struct building *b, struct tsr_value *const *args,
				      size_t nargs, bool v3)
{
	struct tsr_torch_view *v = b->v;
	const size_t fixed = ARG_COUNT + v3;
	unsigned nstrides = 0;

	TSR_TRY(read_storage(b, args[STORAGE], v3));
	if (v3)
		TSR_TRY(read_dtype(b, args[ARG_COUNT]));
	else
		v->dtype = v->record.dtype->dtype;
	v->swapped = b->a->swapped && tsr_dtype_bits(v->dtype) > 8;
	if (!tsr_value_get_u64(args[OFFSET], &v->first))
		return bad(b, "offset", args[OFFSET], "an int from 0 to 2^64-1");
	TSR_TRY(read_numbers(b, "size", args[SIZE], TSR_TORCH_DIM_MAX, v->shape, &v->rank));
	TSR_TRY(read_numbers(b, "stride", args[STRIDE], UINT64_MAX, v->stride, &nstrides));
	if (nstrides != v->rank)
		return tsr_torch_fail(b->a, TSR_E_FORMAT, b->at,
				      "found %u strides, expected %u as there are dimensions",
				      nstrides, v->rank);
	if (args[REQUIRES_GRAD]->type != TSR_VALUE_BOOL)
		return bad(b, "requires_grad", args[REQUIRES_GRAD], "a bool");
	v->requires_grad = args[REQUIRES_GRAD]->boolean;
	if (!tsr_torch_no_hooks(args[HOOKS]))
		return bad(b, "hooks", args[HOOKS], "an empty OrderedDict");
	return nargs > fixed ? check_metadata(b, args[fixed]) : TSR_OK;
}

/* The facts of struct tsr_job_state about a tensor. */
static enum tsr_status read_facts(const struct building *b, const uint64_t *facts)
{
	struct tsr_torch_view *v = b->v;

	v->dtype = (enum tsr_dtype)facts[0];
	v->rank = (unsigned)facts[1];
	memcpy(v->shape, facts + 2, v->rank * sizeof(*v->shape));
	memcpy(v->stride, facts + 2 + v->rank, v->rank * sizeof(*v->stride));
	TSR_TRY(measure(b));
	v->record.nbytes = v->nbytes;
	settle_strides(v);
	return TSR_OK;
}

/* hole(number, requires_grad, whether it is a parameter): a storage of its own, whose place is its number. */
static enum tsr_status read_hole(const struct building *b, const struct tsr_value *call)
{
	const struct tsr_value *args = call->call.args;
	struct tsr_value *const *items = args->list.items;
	uint64_t number;

	if (call->call.is_new || call->call.state || call->call.items || args->list.n != 3 ||
	    !tsr_value_get_u64(items[0], &number) || number >= b->a->nfacts ||
	    items[1]->type != TSR_VALUE_BOOL || items[2]->type != TSR_VALUE_BOOL)
		return tsr_torch_fail(
			b->a, TSR_E_FORMAT, b->at,
			"found a tensor of a running job of another form, expected the "
			"number of one of its %zu, and two bools",
			b->a->nfacts);
	b->v->member = (size_t)number;
	b->v->record.offset = number;
	b->v->requires_grad = items[1]->boolean;
	b->v->parameter = items[2]->boolean;
	return read_facts(b, b->a->facts[number]);
}

enum tsr_status tsr_torch_view(struct tsr_torch_archive *a, const struct tsr_value *call,
			       const char *at, struct tsr_torch_view *ret)
{
	const struct building b = { a, at, ret };
	const struct tsr_value *args = call->call.args;
	const bool v3 = is_v3(call);
	const size_t fixed = ARG_COUNT + v3, n = args->list.n;

	memset(ret, 0, sizeof(*ret));
	if (a->facts)
		return is_hole(call) ? read_hole(&b, call)
				     : tsr_torch_fail(a, TSR_E_FORMAT, at,
						      "found a tensor of a file, expected one of "
						      "the job");
	if (is_hole(call))
		return tsr_torch_fail(a, TSR_E_FORMAT, at,
				      "found a tensor of a running job, expected one that is here");
	if (call->call.is_new || call->call.state || call->call.items || n < fixed || n > fixed + 1)
		return tsr_torch_fail(
			a, TSR_E_FORMAT, at,
			"found %s with %zu arguments%s, expected %zu or %zu and no state",
			call->call.callee->global.name, n,
			call->call.state || call->call.items ? " and a state" : "", fixed,
			fixed + 1);
	TSR_TRY(read_arguments(&b, args->list.items, n, v3));
	TSR_TRY(measure(&b));
	TSR_TRY(check_bounds(&b));
	TSR_TRY(check_expansion(&b));
	settle_strides(ret);
	return TSR_OK;
}

/* --- The array ------------------------------------------------------------------------------ */

void tsr_torch_chunk(const struct tsr_torch_view *view, struct tsr_chunk *ret)
{
	const struct tsr_torch_record *r = &view->record;

	ret->file = r->file;
	ret->offset = r->offset + view->first * (tsr_dtype_bits(view->dtype) / 8);
	ret->has_crc = r->has_crc;
	ret->crc = r->crc;
	ret->crc_offset = r->offset;
	ret->crc_nbytes = r->nbytes;
}

static enum tsr_status add_layout(struct tsr_checkpoint *c, const struct tsr_torch_view *view,
				  struct tsr_array *ret, struct tsr_err *err)
{
	const size_t n = view->rank;
	struct tsr_layout *layout = tsr_arena_alloc(c->arena, sizeof(*layout));
	struct tsr_chunk *chunk = tsr_arena_alloc(c->arena, sizeof(*chunk));
	uint64_t *numbers = tsr_arena_alloc(c->arena, 2 * n * sizeof(*numbers));

	if (!layout || !chunk || !numbers)
		return tsr_build_nomem(c, err);
	if (n)
		memcpy(numbers + n, view->stride, n * sizeof(*numbers));
	tsr_torch_chunk(view, chunk);
	chunk->start = numbers;
	chunk->size = ret->shape;
	chunk->stride = numbers + n;
	layout->nchunks = 1;
	layout->chunks = chunk;
	layout->swapped = view->swapped;
	ret->layout = layout;
	return TSR_OK;
}

/* Those of a view with gaps, or that has elements twice, end here: it becomes row-major. */
static enum tsr_status keep_strides(struct tsr_checkpoint *c, const struct tsr_torch_view *view,
				    struct tsr_array *ret, struct tsr_err *err)
{
	const size_t nbytes = view->rank * sizeof(*view->given);

	if (tsr_strides_are_rows(view->rank, view->shape, view->given) ||
	    !tsr_strides_are_dense(view->rank, view->shape, view->given))
		return TSR_OK;
	ret->stride = tsr_arena_dup(c->arena, view->given, nbytes);
	return ret->stride ? TSR_OK : tsr_build_nomem(c, err);
}

enum tsr_status tsr_torch_array(struct tsr_checkpoint *c, const struct tsr_torch_view *view,
				struct tsr_array *ret, struct tsr_err *err)
{
	const struct tsr_torch_record *r = &view->record;
	const bool whole = view->nbytes == r->nbytes;

	*ret = (struct tsr_array){ .dtype = view->dtype,
				   .rank = view->rank,
				   .shape = tsr_arena_dup(c->arena, view->shape,
							  view->rank * sizeof(*view->shape)),
				   .file = r->file };
	if (!ret->shape)
		return tsr_build_nomem(c, err);
	TSR_TRY(keep_strides(c, view, ret, err));
	/* A part of a record with a checksum gets a layout for the checksum's sake. */
	if (view->numel && (!view->contiguous || view->swapped || (r->has_crc && !whole)))
		return add_layout(c, view, ret, err);
	ret->offset = r->offset + view->first * (tsr_dtype_bits(view->dtype) / 8);
	ret->has_crc = r->has_crc && whole;
	ret->crc = r->crc;
	return TSR_OK;
}
