/* SPDX-License-Identifier: Apache-2.0 */
/* Writing a value as a pickle of protocol 2. */
#include "format/pickle_writer.h"

#include "base/fail.h"

/* As in CPython, which reads back one batch at a time. */
#define BATCH 1000u

/* What `scratch` of a value says: not reached, once, more often, and then its memo id. */
#define ONCE 1u
#define SHARED 2u
#define NAMED_INSIDE 3u /* by a BACK in its own items or state */
#define FIRST_ID 4u

/* A global that was written: the memo has it. */
struct known {
	const char *module, *name;
	uint64_t id;
};

static enum tsr_status write_value(struct tsr_pickle_writer *w, const struct tsr_value *v);
static enum tsr_status write_global(struct tsr_pickle_writer *w, const char *module,
				    const char *name);
static void end_call(struct tsr_pickle_writer *w, size_t nargs);

/* --- Which values are shared ---------------------------------------------------------------- */

/* Whether Python can distinguish one such value, reached twice, from two.  Globals: see below. */
static bool has_identity(const struct tsr_value *v)
{
	switch (v->type) {
	case TSR_VALUE_STRING:
	case TSR_VALUE_BYTES:
	case TSR_VALUE_TENSOR:
	case TSR_VALUE_CALL:
	case TSR_VALUE_PERSISTENT:
		return true;
	case TSR_VALUE_TUPLE:
		return v->list.n > 0;
	default:
		return tsr_value_is_list(v);
	}
}

/* This walk and the writing recurse as deep as tsr_value_check() allows. */
static void count_below(const struct tsr_value *v)
{
	const size_t n = tsr_value_nchildren(v);

	for (size_t i = 0; i < n; i++) {
		const struct tsr_value *child = tsr_value_child(v, i);
		uint32_t *note = child ? tsr_value_scratch(child) : NULL;

		if (child && child->type == TSR_VALUE_BACK)
			*tsr_value_scratch(child->object) = NAMED_INSIDE;
		if (!child || !has_identity(child) || *note == NAMED_INSIDE)
			continue;
		*note = *note ? SHARED : ONCE;
		if (*note == ONCE)
			count_below(child);
	}
}

/* --- Globals, each written once -------------------------------------------------------------- */

static bool is_global(const void *item, const void *key)
{
	const struct known *a = item, *b = key;

	return strcmp(a->module, b->module) == 0 && strcmp(a->name, b->name) == 0;
}

/* A newline in a name would start opcodes of its own. */
static enum tsr_status check_names(struct tsr_pickle_writer *w, const char *module,
				   const char *name)
{
	if (tsr_value_is_name(module, strlen(module)) && tsr_value_is_name(name, strlen(name)))
		return TSR_OK;
	return tsr_fail(w->err, TSR_E_FORMAT,
			"%.400s: found global \"%.200s %.200s\", expected ASCII identifiers with "
			"dots of at most %u bytes",
			w->where, module, name, TSR_VALUE_NAME_MAX);
}

/*
 * The first @n bytes of a name in a module.  With dots it is getattr(class, name): readers of protocol 2
 * take a dot for a part of one name.
 */
static enum tsr_status write_name(struct tsr_pickle_writer *w, const char *module, const char *name,
				  size_t n)
{
	const char *dot = memrchr(name, '.', n);
	const size_t before = dot ? (size_t)(dot - name) : 0;

	if (!dot) {
		tsr_pickle_put_op(w, 'c'); /* GLOBAL */
		tsr_text_puts(w->out, module);
		tsr_pickle_put_op(w, '\n');
		tsr_text_put(w->out, name, n);
		tsr_pickle_put_op(w, '\n');
		return TSR_OK;
	}
	TSR_TRY(write_global(w, "__builtin__", "getattr"));
	TSR_TRY(write_name(w, module, name, before));
	TSR_TRY(tsr_pickle_put_string(w, dot + 1, n - before - 1));
	end_call(w, 2);
	return TSR_OK;
}

static enum tsr_status write_global(struct tsr_pickle_writer *w, const char *module,
				    const char *name)
{
	const struct known key = { .module = module, .name = name };
	const uint64_t hash = tsr_map_hash(&w->known, module, strlen(module), 0) ^
			      tsr_map_hash(&w->known, name, strlen(name), 1);
	bool is_new;
	struct known *known = tsr_map_put(&w->known, hash, &key, &is_new);

	if (!known)
		return tsr_fail_nomem(w->err, w->where);
	if (!is_new) {
		tsr_pickle_put_from_memo(w, (uint32_t)known->id);
		return TSR_OK;
	}
	*known = key;
	TSR_TRY(check_names(w, module, name));
	TSR_TRY(write_name(w, module, name, strlen(name)));
	known = tsr_map_put(&w->known, hash, &key, &is_new); /* it may have moved */
	if (!known)
		return tsr_fail_nomem(w->err, w->where);
	known->id = tsr_pickle_put_memo(w);
	return TSR_OK;
}

static enum tsr_status write_word(struct tsr_pickle_writer *w, enum tsr_pickle_word word)
{
	static const char *const texts[] = {
		[TSR_WORD_STORAGE] = "storage",
		[TSR_WORD_CPU] = "cpu",
		[TSR_WORD_LATIN1] = "latin1",
	};

	if (w->words[word]) {
		tsr_pickle_put_from_memo(w, w->words[word] - 1);
		return TSR_OK;
	}
	TSR_TRY(tsr_pickle_put_string(w, texts[word], strlen(texts[word])));
	w->words[word] = 1 + tsr_pickle_put_memo(w);
	return TSR_OK;
}

/* --- Containers and calls ----------------------------------------------------------------------------- */

/* Values for the list, or pairs for the dict, that is at the top of the stack. */
static enum tsr_status write_items(struct tsr_pickle_writer *w, const struct tsr_value *list)
{
	const bool pairs = list->type == TSR_VALUE_DICT;
	const size_t width = pairs ? 2 : 1, n = list->list.n;

	for (size_t start = 0; start < n; start += width * BATCH) {
		const size_t left = n - start;
		const size_t batch = left < width * BATCH ? left : width * BATCH;

		if (batch > width)
			tsr_pickle_put_op(w, '('); /* MARK */
		for (size_t i = 0; i < batch; i++)
			TSR_TRY(write_value(w, list->list.items[start + i]));
		if (batch > width)
			tsr_pickle_put_op(w, pairs ? 'u' : 'e'); /* SETITEMS, APPENDS */
		else
			tsr_pickle_put_op(w, pairs ? 's' : 'a'); /* SETITEM, APPEND */
	}
	return TSR_OK;
}

/* Tuples of up to three values have opcodes of their own, and need no mark. */
static void begin_tuple(struct tsr_pickle_writer *w, size_t n)
{
	if (n > 3)
		tsr_pickle_put_op(w, '('); /* MARK */
}

static void end_tuple(struct tsr_pickle_writer *w, size_t n)
{
	static const unsigned char ops[] = { ')', 0x85, 0x86, 0x87 }; /* EMPTY_TUPLE, TUPLE1.. */

	tsr_pickle_put_op(w, n > 3 ? 't' : ops[n]); /* TUPLE */
}

/* What is at the top of the stack, called with the values above it. */
static void end_call(struct tsr_pickle_writer *w, size_t nargs)
{
	end_tuple(w, nargs);
	tsr_pickle_put_op(w, 'R'); /* REDUCE */
}

static enum tsr_status write_tuple(struct tsr_pickle_writer *w, const struct tsr_value *v)
{
	begin_tuple(w, v->list.n);
	for (size_t i = 0; i < v->list.n; i++)
		TSR_TRY(write_value(w, v->list.items[i]));
	end_tuple(w, v->list.n);
	return TSR_OK;
}

/* _codecs.encode(str, "latin1"): protocol 2 has no bytes. */
static enum tsr_status write_bytes(struct tsr_pickle_writer *w, const struct tsr_value *v)
{
	size_t nbytes = v->text.nbytes;

	for (size_t i = 0; i < v->text.nbytes; i++)
		nbytes += (unsigned char)v->text.bytes[i] >> 7;
	TSR_TRY(write_global(w, "_codecs", "encode"));
	TSR_TRY(tsr_pickle_put_string_head(w, nbytes));
	for (size_t i = 0; i < v->text.nbytes; i++) {
		const unsigned char byte = (unsigned char)v->text.bytes[i];

		if (byte & 0x80)
			tsr_pickle_put_op(w, (unsigned char)(0xc0 | byte >> 6));
		tsr_pickle_put_op(w, byte & 0x80 ? byte & 0xbf : byte);
	}
	TSR_TRY(write_word(w, TSR_WORD_LATIN1));
	end_call(w, 2);
	return TSR_OK;
}

/* Protocol 2 has no sets: set([...]). */
static enum tsr_status write_set(struct tsr_pickle_writer *w, const struct tsr_value *v)
{
	const char *name = v->type == TSR_VALUE_SET ? "set" : "frozenset";

	TSR_TRY(write_global(w, "__builtin__", name));
	tsr_pickle_put_op(w, ']'); /* EMPTY_LIST */
	TSR_TRY(write_items(w, v));
	end_call(w, 1);
	return TSR_OK;
}

/* The object in whose items or state this stands. */
static enum tsr_status write_back(struct tsr_pickle_writer *w, const struct tsr_value *v)
{
	const uint32_t note = *tsr_value_scratch(v->object);

	if (note >= FIRST_ID)
		tsr_pickle_put_from_memo(w, note - FIRST_ID);
	else if (v->object->type == TSR_VALUE_NONE)
		tsr_pickle_put_op(w, 'N'); /* it was left out */
	else
		return tsr_fail(w->err, TSR_E_UNSUPPORTED,
				"%.400s: found an object that names one around it, of which it is "
				"no part any more",
				w->where);
	return TSR_OK;
}

static enum tsr_status write_call(struct tsr_pickle_writer *w, const struct tsr_value *v)
{
	uint32_t *note = tsr_value_scratch(v);

	TSR_TRY(write_value(w, v->call.callee));
	TSR_TRY(write_value(w, v->call.args));
	if (v->call.kwargs)
		TSR_TRY(write_value(w, v->call.kwargs));
	tsr_pickle_put_op(w, v->call.kwargs   ? 0x92
			     : v->call.is_new ? 0x81
					      : 'R'); /* NEWOBJ_EX, .. REDUCE */
	if (*note == NAMED_INSIDE)
		*note = FIRST_ID + tsr_pickle_put_memo(w);
	if (v->call.items)
		TSR_TRY(write_items(w, v->call.items));
	if (v->call.state) {
		TSR_TRY(write_value(w, v->call.state));
		tsr_pickle_put_op(w, 'b'); /* BUILD */
	}
	return TSR_OK;
}

/* --- Tensors -------------------------------------------------------------------------------- */

static enum tsr_status write_ordered_dict(struct tsr_pickle_writer *w)
{
	TSR_TRY(write_global(w, "collections", "OrderedDict"));
	end_call(w, 0);
	return TSR_OK;
}

/* The persistent id of a storage, and what it stands for. */
static enum tsr_status write_storage(struct tsr_pickle_writer *w, const struct tsr_pickle_tensor *t)
{
	tsr_pickle_put_op(w, '('); /* MARK */
	TSR_TRY(write_word(w, TSR_WORD_STORAGE));
	TSR_TRY(write_global(w, t->storage ? "torch" : "torch.storage",
			     t->storage ? t->storage : "UntypedStorage"));
	TSR_TRY(tsr_pickle_put_string(w, t->key, strlen(t->key)));
	TSR_TRY(write_word(w, TSR_WORD_CPU));
	TSR_TRY(tsr_pickle_put_u64(w, t->storage_numel));
	tsr_pickle_put_op(w, 't'); /* TUPLE */
	tsr_pickle_put_op(w, 'Q'); /* BINPERSID */
	return TSR_OK;
}

/* The stride of dimension @d, in elements. */
static uint64_t stride_of(const struct tsr_pickle_tensor *t, unsigned d)
{
	uint64_t stride = 1;

	if (t->stride)
		return t->stride[d];
	for (unsigned i = d + 1; i < t->rank; i++)
		stride *= t->shape[i] ? t->shape[i] : 1;
	return stride;
}

static enum tsr_status write_shape(struct tsr_pickle_writer *w, const struct tsr_pickle_tensor *t,
				   bool strides)
{
	begin_tuple(w, t->rank);
	for (unsigned i = 0; i < t->rank; i++)
		TSR_TRY(tsr_pickle_put_u64(w, strides ? stride_of(t, i) : t->shape[i]));
	end_tuple(w, t->rank);
	return TSR_OK;
}

static enum tsr_status write_rebuilder(struct tsr_pickle_writer *w,
				       const struct tsr_pickle_tensor *t)
{
	return write_global(w, "torch._utils",
			    t->storage ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
}

/* The arguments of the function that rebuilds it. */
static enum tsr_status write_tensor_args(struct tsr_pickle_writer *w,
					 const struct tsr_pickle_tensor *t, bool requires_grad)
{
	tsr_pickle_put_op(w, '('); /* MARK */
	TSR_TRY(write_storage(w, t));
	TSR_TRY(tsr_pickle_put_u64(w, 0));
	TSR_TRY(write_shape(w, t, false));
	TSR_TRY(write_shape(w, t, true));
	tsr_pickle_put_bool(w, requires_grad);
	TSR_TRY(write_ordered_dict(w)); /* hooks */
	if (!t->storage)
		TSR_TRY(write_global(w, "torch", t->dtype));
	tsr_pickle_put_op(w, 't'); /* TUPLE */
	return TSR_OK;
}

static enum tsr_status write_plain_tensor(struct tsr_pickle_writer *w,
					  const struct tsr_pickle_tensor *t, bool requires_grad)
{
	TSR_TRY(write_rebuilder(w, t));
	TSR_TRY(write_tensor_args(w, t, requires_grad));
	tsr_pickle_put_op(w, 'R'); /* REDUCE */
	return TSR_OK;
}

/*
 * A tensor with attributes, whose function and arguments are arguments of another function; or a subclass of
 * tensor: one of its attributes is the tensor whose array it has.
 */
static enum tsr_status write_typed(struct tsr_pickle_writer *w, const struct tsr_value *v)
{
	const struct tsr_pickle_tensor *t = &w->tensors[v->tensor.array];

	TSR_TRY(write_global(w, "torch._tensor", "_rebuild_from_type_v2"));
	tsr_pickle_put_op(w, '('); /* MARK */
	if (v->tensor.wrapper) {
		TSR_TRY(write_global(w, "torch._utils", "_rebuild_wrapper_subclass"));
		TSR_TRY(write_value(w, v->tensor.wrapper->list.items[0]));
		TSR_TRY(write_value(w, v->tensor.wrapper));
	} else {
		TSR_TRY(write_rebuilder(w, t));
		TSR_TRY(write_global(w, "torch", "Tensor"));
		TSR_TRY(write_tensor_args(w, t, v->tensor.requires_grad));
	}
	TSR_TRY(write_value(w, v->tensor.attributes));
	tsr_pickle_put_op(w, 't'); /* TUPLE */
	tsr_pickle_put_op(w, 'R'); /* REDUCE */
	return TSR_OK;
}

static enum tsr_status write_tensor(struct tsr_pickle_writer *w, const struct tsr_value *v)
{
	const struct tsr_pickle_tensor *t = &w->tensors[v->tensor.array];
	const struct tsr_value *attributes = v->tensor.attributes;

	if (v->tensor.wrapper || (attributes && !v->tensor.parameter))
		return write_typed(w, v);
	if (!v->tensor.parameter)
		return write_plain_tensor(w, t, v->tensor.requires_grad);
	TSR_TRY(write_global(w, "torch._utils",
			     attributes ? "_rebuild_parameter_with_state" : "_rebuild_parameter"));
	begin_tuple(w, attributes ? 4 : 3);
	TSR_TRY(write_plain_tensor(w, t, false)); /* its data, which has no gradient of its own */
	tsr_pickle_put_bool(w, v->tensor.requires_grad);
	TSR_TRY(write_ordered_dict(w));
	if (attributes)
		TSR_TRY(write_value(w, attributes));
	end_call(w, attributes ? 4 : 3);
	return TSR_OK;
}

/* --- Values --------------------------------------------------------------------------------- */

static enum tsr_status write_new(struct tsr_pickle_writer *w, const struct tsr_value *v)
{
	switch (v->type) {
	case TSR_VALUE_NONE:
		tsr_pickle_put_op(w, 'N');
		return TSR_OK;
	case TSR_VALUE_BOOL:
		tsr_pickle_put_bool(w, v->boolean);
		return TSR_OK;
	case TSR_VALUE_INT:
		return tsr_pickle_put_int(w, v);
	case TSR_VALUE_FLOAT:
		tsr_pickle_put_float(w, v->real);
		return TSR_OK;
	case TSR_VALUE_STRING:
		return tsr_pickle_put_string(w, v->text.bytes, v->text.nbytes);
	case TSR_VALUE_BYTES:
		return write_bytes(w, v);
	case TSR_VALUE_LIST:
		tsr_pickle_put_op(w, ']'); /* EMPTY_LIST */
		return write_items(w, v);
	case TSR_VALUE_TUPLE:
		return write_tuple(w, v);
	case TSR_VALUE_SET:
	case TSR_VALUE_FROZENSET:
		return write_set(w, v);
	case TSR_VALUE_DICT:
		tsr_pickle_put_op(w, '}'); /* EMPTY_DICT */
		return write_items(w, v);
	case TSR_VALUE_GLOBAL:
		return write_global(w, v->global.module, v->global.name);
	case TSR_VALUE_CALL:
		return write_call(w, v);
	case TSR_VALUE_TENSOR:
		return write_tensor(w, v);
	case TSR_VALUE_BACK:
		return write_back(w, v);
	case TSR_VALUE_PERSISTENT:
		break;
	}
	return tsr_fail(w->err, TSR_E_UNSUPPORTED,
			"%.400s: found a persistent object, expected storages inside tensors only",
			w->where);
}

static enum tsr_status write_value(struct tsr_pickle_writer *w, const struct tsr_value *v)
{
	uint32_t *note = tsr_value_scratch(v);

	if (*note >= FIRST_ID) {
		tsr_pickle_put_from_memo(w, *note - FIRST_ID);
		return TSR_OK;
	}
	TSR_TRY(write_new(w, v));
	if (*note == SHARED)
		*note = FIRST_ID + tsr_pickle_put_memo(w);
	return TSR_OK;
}

static enum tsr_status write_pickle(struct tsr_pickle_writer *w, const struct tsr_value *root)
{
	const size_t start = w->out->nbytes;

	tsr_pickle_put_with(w, 0x80, 2, 1); /* PROTO */
	TSR_TRY(write_value(w, root));
	tsr_pickle_put_op(w, '.'); /* STOP */
	if (w->out->nbytes - start > TSR_PICKLE_NBYTES_MAX)
		return tsr_fail(w->err, TSR_E_LIMIT,
				"%.400s: pickle of %zu bytes is over the limit of %" PRIu64,
				w->where, w->out->nbytes - start, TSR_PICKLE_NBYTES_MAX);
	return TSR_OK;
}

enum tsr_status tsr_pickle_write(const struct tsr_value *root,
				 const struct tsr_pickle_tensor *tensors, const char *where,
				 struct tsr_text *out, struct tsr_err *err)
{
	struct tsr_pickle_writer w = { .out = out, .tensors = tensors, .where = where, .err = err };
	enum tsr_status status;

	w.known = (struct tsr_map){ .item_nbytes = sizeof(struct known), .same = is_global };
	TSR_TRY(tsr_value_check(root, where, err));
	count_below(root);
	status = write_pickle(&w, root);
	tsr_value_clear_scratch(root);
	tsr_map_free(&w.known);
	return status;
}
