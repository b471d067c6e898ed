/* SPDX-License-Identifier: Apache-2.0 */
/* Writing a value as a pickle of protocol 2. */
#include "format/pickle.h"

#include <inttypes.h>
#include <string.h>

#include "base/fail.h"
#include "base/little_endian.h"
#include "text/map.h"

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

/* Strings that every tensor has. */
enum word { WORD_STORAGE, WORD_CPU, WORD_LATIN1, NWORDS };

struct writer {
	struct tsr_text *out;
	const struct tsr_pickle_tensor *tensors;
	const char *where;
	struct tsr_err *err;
	uint32_t nmemo;
	struct tsr_map known; /* of struct known */
	uint32_t words[NWORDS]; /* 1 + memo id, or 0 */
};

static enum tsr_status write_value(struct writer *w, const struct tsr_value *v);
static enum tsr_status write_global(struct writer *w, const char *module, const char *name);
static enum tsr_status write_string(struct writer *w, const char *bytes, size_t nbytes);
static void end_call(struct writer *w, size_t nargs);

/* --- Bytes ---------------------------------------------------------------------------------- */

static void put_op(struct writer *w, unsigned char op)
{
	const char byte = (char)op;

	tsr_text_put(w->out, &byte, 1);
}

/* Little-endian. */
static void put_number(struct writer *w, uint64_t value, size_t nbytes)
{
	char bytes[8];

	tsr_put_le(bytes, value, nbytes);
	tsr_text_put(w->out, bytes, nbytes);
}

/* An opcode with an operand. */
static void put_with(struct writer *w, unsigned char op, uint64_t value, size_t nbytes)
{
	put_op(w, op);
	put_number(w, value, nbytes);
}

/* The value at the top of the stack goes into the memo; returns its id. */
static uint32_t put_memo(struct writer *w)
{
	const uint32_t id = w->nmemo++;

	if (id < 256)
		put_with(w, 'q', id, 1); /* BINPUT */
	else
		put_with(w, 'r', id, 4); /* LONG_BINPUT */
	return id;
}

static void put_from_memo(struct writer *w, uint32_t id)
{
	if (id < 256)
		put_with(w, 'h', id, 1); /* BINGET */
	else
		put_with(w, 'j', id, 4); /* LONG_BINGET */
}

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
static enum tsr_status check_names(struct writer *w, const char *module, const char *name)
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
static enum tsr_status write_name(struct writer *w, const char *module, const char *name, size_t n)
{
	const char *dot = memrchr(name, '.', n);
	const size_t before = dot ? (size_t)(dot - name) : 0;

	if (!dot) {
		put_op(w, 'c'); /* GLOBAL */
		tsr_text_puts(w->out, module);
		put_op(w, '\n');
		tsr_text_put(w->out, name, n);
		put_op(w, '\n');
		return TSR_OK;
	}
	TSR_TRY(write_global(w, "__builtin__", "getattr"));
	TSR_TRY(write_name(w, module, name, before));
	TSR_TRY(write_string(w, dot + 1, n - before - 1));
	end_call(w, 2);
	return TSR_OK;
}

static enum tsr_status write_global(struct writer *w, const char *module, const char *name)
{
	const struct known key = { .module = module, .name = name };
	const uint64_t hash = tsr_map_hash(&w->known, module, strlen(module), 0) ^
			      tsr_map_hash(&w->known, name, strlen(name), 1);
	bool is_new;
	struct known *known = tsr_map_put(&w->known, hash, &key, &is_new);

	if (!known)
		return tsr_fail_nomem(w->err, w->where);
	if (!is_new) {
		put_from_memo(w, (uint32_t)known->id);
		return TSR_OK;
	}
	*known = key;
	TSR_TRY(check_names(w, module, name));
	TSR_TRY(write_name(w, module, name, strlen(name)));
	known = tsr_map_put(&w->known, hash, &key, &is_new); /* it may have moved */
	if (!known)
		return tsr_fail_nomem(w->err, w->where);
	known->id = put_memo(w);
	return TSR_OK;
}

/* --- Scalars -------------------------------------------------------------------------------- */

static void write_bool(struct writer *w, bool boolean)
{
	put_op(w, boolean ? 0x88 : 0x89); /* NEWTRUE, NEWFALSE */
}

/* LONG1, LONG4 */
static enum tsr_status write_long(struct writer *w, const char *bytes, size_t nbytes)
{
	if (nbytes > TSR_PICKLE_LONG_MAX)
		return tsr_fail(w->err, TSR_E_LIMIT,
				"%.400s: an int of %zu bytes is over the limit of %u", w->where,
				nbytes, TSR_PICKLE_LONG_MAX);
	if (nbytes < 256)
		put_with(w, 0x8a, nbytes, 1);
	else
		put_with(w, 0x8b, nbytes, 4);
	tsr_text_put(w->out, bytes, nbytes);
	return TSR_OK;
}

static enum tsr_status write_int(struct writer *w, const struct tsr_value *v)
{
	int64_t value;

	if (!tsr_value_get_i64(v, &value) || value < INT32_MIN || value > INT32_MAX)
		return write_long(w, v->text.bytes, v->text.nbytes);
	if (value >= 0 && value < 256)
		put_with(w, 'K', (uint64_t)value, 1); /* BININT1 */
	else if (value >= 0 && value < 65536)
		put_with(w, 'M', (uint64_t)value, 2); /* BININT2 */
	else
		put_with(w, 'J', (uint64_t)value, 4); /* BININT */
	return TSR_OK;
}

static enum tsr_status write_u64(struct writer *w, uint64_t value)
{
	char bytes[9] = { 0 }; /* the last is for the sign */
	struct tsr_value v = { .type = TSR_VALUE_INT, .text.bytes = bytes };

	tsr_put_le(bytes, value, 8);
	v.text.nbytes = 9;
	while (v.text.nbytes > 1 && !bytes[v.text.nbytes - 1] && !(bytes[v.text.nbytes - 2] & 0x80))
		v.text.nbytes--;
	return write_int(w, &v);
}

/* BINFLOAT is the one big-endian thing in a pickle. */
static void write_float(struct writer *w, uint64_t real)
{
	put_op(w, 'G');
	for (int shift = 56; shift >= 0; shift -= 8)
		put_op(w, (unsigned char)(real >> shift));
}

/* The opcode and length of a string, whose bytes follow. */
static enum tsr_status put_string_head(struct writer *w, size_t nbytes)
{
	if (nbytes > TSR_PICKLE_STRING_MAX)
		return tsr_fail(w->err, TSR_E_LIMIT,
				"%.400s: a string of %zu bytes is over the limit of %" PRIu64,
				w->where, nbytes, TSR_PICKLE_STRING_MAX);
	put_with(w, 'X', nbytes, 4); /* BINUNICODE */
	return TSR_OK;
}

static enum tsr_status write_string(struct writer *w, const char *bytes, size_t nbytes)
{
	if (!tsr_value_is_text(bytes, nbytes))
		return tsr_fail(w->err, TSR_E_FORMAT, "%.400s: found a string that is not UTF-8",
				w->where);
	TSR_TRY(put_string_head(w, nbytes));
	tsr_text_put(w->out, bytes, nbytes);
	return TSR_OK;
}

static enum tsr_status write_word(struct writer *w, enum word word)
{
	static const char *const texts[] = {
		[WORD_STORAGE] = "storage",
		[WORD_CPU] = "cpu",
		[WORD_LATIN1] = "latin1",
	};

	if (w->words[word]) {
		put_from_memo(w, w->words[word] - 1);
		return TSR_OK;
	}
	TSR_TRY(write_string(w, texts[word], strlen(texts[word])));
	w->words[word] = 1 + put_memo(w);
	return TSR_OK;
}

/* --- Containers and calls ----------------------------------------------------------------------------- */

/* Values for the list, or pairs for the dict, that is at the top of the stack. */
static enum tsr_status write_items(struct writer *w, const struct tsr_value *list)
{
	const bool pairs = list->type == TSR_VALUE_DICT;
	const size_t width = pairs ? 2 : 1, n = list->list.n;

	for (size_t start = 0; start < n; start += width * BATCH) {
		const size_t left = n - start;
		const size_t batch = left < width * BATCH ? left : width * BATCH;

		if (batch > width)
			put_op(w, '('); /* MARK */
		for (size_t i = 0; i < batch; i++)
			TSR_TRY(write_value(w, list->list.items[start + i]));
		if (batch > width)
			put_op(w, pairs ? 'u' : 'e'); /* SETITEMS, APPENDS */
		else
			put_op(w, pairs ? 's' : 'a'); /* SETITEM, APPEND */
	}
	return TSR_OK;
}

/* Tuples of up to three values have opcodes of their own, and need no mark. */
static void begin_tuple(struct writer *w, size_t n)
{
	if (n > 3)
		put_op(w, '('); /* MARK */
}

static void end_tuple(struct writer *w, size_t n)
{
	static const unsigned char ops[] = { ')', 0x85, 0x86, 0x87 }; /* EMPTY_TUPLE, TUPLE1.. */

	put_op(w, n > 3 ? 't' : ops[n]); /* TUPLE */
}

/* What is at the top of the stack, called with the values above it. */
static void end_call(struct writer *w, size_t nargs)
{
	end_tuple(w, nargs);
	put_op(w, 'R'); /* REDUCE */
}

static enum tsr_status write_tuple(struct writer *w, const struct tsr_value *v)
{
	begin_tuple(w, v->list.n);
	for (size_t i = 0; i < v->list.n; i++)
		TSR_TRY(write_value(w, v->list.items[i]));
	end_tuple(w, v->list.n);
	return TSR_OK;
}

/* _codecs.encode(str, "latin1"): protocol 2 has no bytes. */
static enum tsr_status write_bytes(struct writer *w, const struct tsr_value *v)
{
	size_t nbytes = v->text.nbytes;

	for (size_t i = 0; i < v->text.nbytes; i++)
		nbytes += (unsigned char)v->text.bytes[i] >> 7;
	TSR_TRY(write_global(w, "_codecs", "encode"));
	TSR_TRY(put_string_head(w, nbytes));
	for (size_t i = 0; i < v->text.nbytes; i++) {
		const unsigned char byte = (unsigned char)v->text.bytes[i];

		if (byte & 0x80)
			put_op(w, (unsigned char)(0xc0 | byte >> 6));
		put_op(w, byte & 0x80 ? byte & 0xbf : byte);
	}
	TSR_TRY(write_word(w, WORD_LATIN1));
	end_call(w, 2);
	return TSR_OK;
}

/* Protocol 2 has no sets: set([...]). */
static enum tsr_status write_set(struct writer *w, const struct tsr_value *v)
{
	const char *name = v->type == TSR_VALUE_SET ? "set" : "frozenset";

	TSR_TRY(write_global(w, "__builtin__", name));
	put_op(w, ']'); /* EMPTY_LIST */
	TSR_TRY(write_items(w, v));
	end_call(w, 1);
	return TSR_OK;
}

/* The object in whose items or state this stands. */
static enum tsr_status write_back(struct writer *w, const struct tsr_value *v)
{
	const uint32_t note = *tsr_value_scratch(v->object);

	if (note >= FIRST_ID)
		put_from_memo(w, note - FIRST_ID);
	else if (v->object->type == TSR_VALUE_NONE)
		put_op(w, 'N'); /* it was left out */
	else
		return tsr_fail(w->err, TSR_E_UNSUPPORTED,
				"%.400s: found an object that names one around it, of which it is "
				"no part any more",
				w->where);
	return TSR_OK;
}

static enum tsr_status write_call(struct writer *w, const struct tsr_value *v)
{
	uint32_t *note = tsr_value_scratch(v);

	TSR_TRY(write_value(w, v->call.callee));
	TSR_TRY(write_value(w, v->call.args));
	if (v->call.kwargs)
		TSR_TRY(write_value(w, v->call.kwargs));
	put_op(w, v->call.kwargs ? 0x92 : v->call.is_new ? 0x81 : 'R'); /* NEWOBJ_EX, .. REDUCE */
	if (*note == NAMED_INSIDE)
		*note = FIRST_ID + put_memo(w);
	if (v->call.items)
		TSR_TRY(write_items(w, v->call.items));
	if (v->call.state) {
		TSR_TRY(write_value(w, v->call.state));
		put_op(w, 'b'); /* BUILD */
	}
	return TSR_OK;
}

/* --- Tensors -------------------------------------------------------------------------------- */

static enum tsr_status write_ordered_dict(struct writer *w)
{
	TSR_TRY(write_global(w, "collections", "OrderedDict"));
	end_call(w, 0);
	return TSR_OK;
}

/* The persistent id of a storage, and what it stands for. */
static enum tsr_status write_storage(struct writer *w, const struct tsr_pickle_tensor *t)
{
	put_op(w, '('); /* MARK */
	TSR_TRY(write_word(w, WORD_STORAGE));
	TSR_TRY(write_global(w, t->storage ? "torch" : "torch.storage",
			     t->storage ? t->storage : "UntypedStorage"));
	TSR_TRY(write_string(w, t->key, strlen(t->key)));
	TSR_TRY(write_word(w, WORD_CPU));
	TSR_TRY(write_u64(w, t->storage_numel));
	put_op(w, 't'); /* TUPLE */
	put_op(w, 'Q'); /* BINPERSID */
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

static enum tsr_status write_shape(struct writer *w, const struct tsr_pickle_tensor *t,
				   bool strides)
{
	begin_tuple(w, t->rank);
	for (unsigned i = 0; i < t->rank; i++)
		TSR_TRY(write_u64(w, strides ? stride_of(t, i) : t->shape[i]));
	end_tuple(w, t->rank);
	return TSR_OK;
}

static enum tsr_status write_rebuilder(struct writer *w, const struct tsr_pickle_tensor *t)
{
	return write_global(w, "torch._utils",
			    t->storage ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
}

/* The arguments of the function that rebuilds it. */
static enum tsr_status write_tensor_args(struct writer *w, const struct tsr_pickle_tensor *t,
					 bool requires_grad)
{
	put_op(w, '('); /* MARK */
	TSR_TRY(write_storage(w, t));
	TSR_TRY(write_u64(w, 0));
	TSR_TRY(write_shape(w, t, false));
	TSR_TRY(write_shape(w, t, true));
	write_bool(w, requires_grad);
	TSR_TRY(write_ordered_dict(w)); /* hooks */
	if (!t->storage)
		TSR_TRY(write_global(w, "torch", t->dtype));
	put_op(w, 't'); /* TUPLE */
	return TSR_OK;
}

static enum tsr_status write_plain_tensor(struct writer *w, const struct tsr_pickle_tensor *t,
					  bool requires_grad)
{
	TSR_TRY(write_rebuilder(w, t));
	TSR_TRY(write_tensor_args(w, t, requires_grad));
	put_op(w, 'R'); /* REDUCE */
	return TSR_OK;
}

/* A tensor with attributes: function and arguments are arguments of another function. */
static enum tsr_status write_tensor_with_attributes(struct writer *w, const struct tsr_value *v)
{
	const struct tsr_pickle_tensor *t = &w->tensors[v->tensor.array];

	TSR_TRY(write_global(w, "torch._tensor", "_rebuild_from_type_v2"));
	put_op(w, '('); /* MARK */
	TSR_TRY(write_rebuilder(w, t));
	TSR_TRY(write_global(w, "torch", "Tensor"));
	TSR_TRY(write_tensor_args(w, t, v->tensor.requires_grad));
	TSR_TRY(write_value(w, v->tensor.attributes));
	put_op(w, 't'); /* TUPLE */
	put_op(w, 'R'); /* REDUCE */
	return TSR_OK;
}

/* A subclass of tensor: one of its attributes is the tensor whose array it has. */
static enum tsr_status write_subclass(struct writer *w, const struct tsr_value *v)
{
	TSR_TRY(write_global(w, "torch._tensor", "_rebuild_from_type_v2"));
	put_op(w, '('); /* MARK */
	TSR_TRY(write_global(w, "torch._utils", "_rebuild_wrapper_subclass"));
	TSR_TRY(write_value(w, v->tensor.wrapper->list.items[0]));
	TSR_TRY(write_value(w, v->tensor.wrapper));
	TSR_TRY(write_value(w, v->tensor.attributes));
	put_op(w, 't'); /* TUPLE */
	put_op(w, 'R'); /* REDUCE */
	return TSR_OK;
}

static enum tsr_status write_tensor(struct writer *w, const struct tsr_value *v)
{
	const struct tsr_pickle_tensor *t = &w->tensors[v->tensor.array];
	const struct tsr_value *attributes = v->tensor.attributes;

	if (v->tensor.wrapper)
		return write_subclass(w, v);
	if (!v->tensor.parameter)
		return attributes ? write_tensor_with_attributes(w, v)
				  : write_plain_tensor(w, t, v->tensor.requires_grad);
	TSR_TRY(write_global(w, "torch._utils",
			     attributes ? "_rebuild_parameter_with_state" : "_rebuild_parameter"));
	begin_tuple(w, attributes ? 4 : 3);
	TSR_TRY(write_plain_tensor(w, t, false)); /* its data, which has no gradient of its own */
	write_bool(w, v->tensor.requires_grad);
	TSR_TRY(write_ordered_dict(w));
	if (attributes)
		TSR_TRY(write_value(w, attributes));
	end_call(w, attributes ? 4 : 3);
	return TSR_OK;
}

/* --- Values --------------------------------------------------------------------------------- */

static enum tsr_status write_new(struct writer *w, const struct tsr_value *v)
{
	switch (v->type) {
	case TSR_VALUE_NONE:
		put_op(w, 'N');
		return TSR_OK;
	case TSR_VALUE_BOOL:
		write_bool(w, v->boolean);
		return TSR_OK;
	case TSR_VALUE_INT:
		return write_int(w, v);
	case TSR_VALUE_FLOAT:
		write_float(w, v->real);
		return TSR_OK;
	case TSR_VALUE_STRING:
		return write_string(w, v->text.bytes, v->text.nbytes);
	case TSR_VALUE_BYTES:
		return write_bytes(w, v);
	case TSR_VALUE_LIST:
		put_op(w, ']'); /* EMPTY_LIST */
		return write_items(w, v);
	case TSR_VALUE_TUPLE:
		return write_tuple(w, v);
	case TSR_VALUE_SET:
	case TSR_VALUE_FROZENSET:
		return write_set(w, v);
	case TSR_VALUE_DICT:
		put_op(w, '}'); /* EMPTY_DICT */
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

static enum tsr_status write_value(struct writer *w, const struct tsr_value *v)
{
	uint32_t *note = tsr_value_scratch(v);

	if (*note >= FIRST_ID) {
		put_from_memo(w, *note - FIRST_ID);
		return TSR_OK;
	}
	TSR_TRY(write_new(w, v));
	if (*note == SHARED)
		*note = FIRST_ID + put_memo(w);
	return TSR_OK;
}

static enum tsr_status write_pickle(struct writer *w, const struct tsr_value *root)
{
	const size_t start = w->out->nbytes;

	put_with(w, 0x80, 2, 1); /* PROTO */
	TSR_TRY(write_value(w, root));
	put_op(w, '.'); /* STOP */
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
	struct writer w = { .out = out, .tensors = tensors, .where = where, .err = err };
	enum tsr_status status;

	w.known = (struct tsr_map){ .item_nbytes = sizeof(struct known), .same = is_global };
	TSR_TRY(tsr_value_check(root, where, err));
	count_below(root);
	status = write_pickle(&w, root);
	tsr_value_clear_scratch(root);
	tsr_map_free(&w.known);
	return status;
}
