/* SPDX-License-Identifier: Apache-2.0 */
/* Quantized weights are known by their type, and what belongs to them by where it is. */
#include "names/quantized.h"

#include "base/fail.h"
#include "base/order.h"
#include "names/aliases.h"
#include "names/roles.h"
#include "text/bytes.h"

/* What belongs to one quantized weight: tensors with this name and one more component. */
struct scope {
	const char *name;
	size_t len;
	const struct tsr_tensor *weight;
};

struct scopes {
	struct scope *list; /* sorted */
	size_t n;
};

struct finding {
	const struct tsr_checkpoint *c;
	struct scopes weights; /* by their own names */
	struct scopes modules; /* by the names of the modules that they are in */
};

bool tsr_names_is_floating(enum tsr_dtype dtype)
{
	return dtype == TSR_F32 || dtype == TSR_F16 || dtype == TSR_BF16 || dtype == TSR_F64;
}

static bool is_quantized(const struct tsr_tensor *t)
{
	const unsigned bits = tsr_dtype_bits(t->dtype);

	return t->rank && t->dtype != TSR_BOOL &&
	       (bits <= 8 || t->dtype == TSR_I16 || t->dtype == TSR_U16 || t->dtype == TSR_I32 ||
		t->dtype == TSR_U32);
}

/* Bytes of a name before its last separator; 0: there is none. */
static size_t parent(const char *name)
{
	const size_t len = (size_t)(tsr_names_last(name) - name);

	return len ? len - 1 : 0;
}

TSR_COMPARE(by_name, struct scope, tsr_compare_bytes(a->name, a->len, b->name, b->len))

static void sort(struct scopes *s)
{
	if (s->n)
		qsort(s->list, s->n, sizeof(*s->list), by_name);
}

static struct scope *find(const struct scopes *s, const char *name, size_t len)
{
	const struct scope key = { name, len, NULL };

	return s->n ? bsearch(&key, s->list, s->n, sizeof(*s->list), by_name) : NULL;
}

/* Whether @t is larger than @than.  Among equals what is not quantized counts as larger, then by name. */
static bool is_larger(const struct tsr_tensor *t, const struct tsr_tensor *than)
{
	const uint64_t a = tsr_tensor_nbytes(t), b = tsr_tensor_nbytes(than);

	if (a != b)
		return a > b;
	if (is_quantized(t) != is_quantized(than))
		return is_quantized(than);
	return strcmp(t->name, than->name) < 0;
}

/* Keep the modules whose largest tensor is quantized. */
static void keep_quantized(struct scopes *modules)
{
	size_t kept = 0;

	sort(modules);
	for (size_t i = 0, end; i < modules->n; i = end) {
		struct scope module = modules->list[i];

		for (end = i + 1; end < modules->n && !by_name(&module, &modules->list[end]);
		     end++) {
			if (is_larger(modules->list[end].weight, module.weight))
				module.weight = modules->list[end].weight;
		}
		if (is_quantized(module.weight))
			modules->list[kept++] = module;
	}
	modules->n = kept;
}

static void add(struct scopes *s, const struct tsr_tensor *t, size_t len)
{
	if (len)
		s->list[s->n++] = (struct scope){ t->name, len, t };
}

/* 4-bit codes of bitsandbytes may be stored in any type; the integers that describe them tell. */
static void list_scopes(struct finding *f)
{
	for (size_t i = 0; i < f->c->ntensors; i++) {
		const struct tsr_tensor *t = &f->c->tensors[i];
		const char *state = strstr(t->name, ".quant_state.");

		add(&f->modules, t, parent(t->name));
		if (is_quantized(t))
			add(&f->weights, t, state ? (size_t)(state - t->name) : strlen(t->name));
	}
	keep_quantized(&f->modules);
	sort(&f->weights);
	for (size_t i = 0; i < f->c->ntensors; i++) {
		const struct tsr_tensor *t = &f->c->tensors[i];
		struct scope *own = find(&f->weights, t->name, strlen(t->name));

		if (own)
			own->weight = t;
	}
}

/* The quantized weight that a tensor belongs to or, if it is stored in another type, is; or NULL. */
static const struct tsr_tensor *weight_of(const struct finding *f, const struct tsr_tensor *t)
{
	const size_t module = parent(t->name);
	const struct scope *s = find(&f->weights, t->name, strlen(t->name));

	if (!s)
		s = find(&f->weights, t->name, module);
	if (!s)
		s = find(&f->modules, t->name, module);
	return s ? s->weight : NULL;
}

/* A packed file records what was packed. */
static bool may_belong(const struct tsr_checkpoint *c, const struct tsr_tensor *t)
{
	return tsr_names_is_floating(t->dtype) && (!c->packed || t->kind == TSR_KIND_OTHER);
}

enum tsr_status tsr_quantized_find(struct tsr_checkpoint *c, struct tsr_err *err)
{
	TSR_OWNED(tsr_arena_free) struct tsr_arena *arena = tsr_arena_new(SIZE_MAX);
	struct finding f = { .c = c };

	TSR_TRY(TSR_TAKE(&f.weights.list, c->ntensors + 1, arena, err, c->path));
	TSR_TRY(TSR_TAKE(&f.modules.list, c->ntensors + 1, arena, err, c->path));
	list_scopes(&f);
	for (size_t i = 0; i < c->ntensors; i++) {
		struct tsr_tensor *t = &c->tensors[i];
		const struct tsr_tensor *weight = may_belong(c, t) ? weight_of(&f, t) : NULL;

		t->quantized = weight ? weight->name : NULL;
	}
	return TSR_OK;
}
