/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_TESTS_VALUES_H
#define TSR_TESTS_VALUES_H

/* Values for tests: an arena that ends with the test, and a text that shows all that a value is. */
#include "text/text.h"
#include "format/value.h"
#include "unit.h"

/* Much like Python's repr(). */
static inline UNUSED void show(struct tsr_text *t, const struct tsr_value *v);

static inline UNUSED void show_text(struct tsr_text *t, const struct tsr_value *v)
{
	tsr_text_puts(t, "'");
	for (size_t i = 0; i < v->text.nbytes; i++) {
		const unsigned char c = (unsigned char)v->text.bytes[i];

		tsr_text_printf(t, c < 0x20 || c >= 0x7f ? "\\x%02x" : "%c", c);
	}
	tsr_text_puts(t, "'");
	assert_int_equal(v->text.bytes[v->text.nbytes], 0);
}

static inline UNUSED void show_int(struct tsr_text *t, const struct tsr_value *v)
{
	int64_t value;

	if (tsr_value_get_i64(v, &value)) {
		tsr_text_printf(t, "%lld", (long long)value);
		return;
	}
	tsr_text_puts(t, "0x"); /* two's complement */
	for (size_t i = v->text.nbytes; i--;)
		tsr_text_printf(t, "%02x", (unsigned char)v->text.bytes[i]);
}

static inline UNUSED void show_list(struct tsr_text *t, const struct tsr_value *v)
{
	static const char *const open[] = {
		[TSR_VALUE_LIST] = "[",	  [TSR_VALUE_TUPLE] = "(",
		[TSR_VALUE_SET] = "set[", [TSR_VALUE_FROZENSET] = "frozenset[",
		[TSR_VALUE_DICT] = "{",
	};

	tsr_text_puts(t, open[v->type]);
	for (size_t i = 0; i < v->list.n; i++) {
		if (i)
			tsr_text_puts(t, v->type == TSR_VALUE_DICT && i % 2 ? ": " : ", ");
		show(t, v->list.items[i]);
	}
	if (v->type == TSR_VALUE_TUPLE && v->list.n == 1)
		tsr_text_puts(t, ",");
	tsr_text_puts(t, v->type == TSR_VALUE_TUPLE ? ")" : v->type == TSR_VALUE_DICT ? "}" : "]");
}

static inline UNUSED void show_call(struct tsr_text *t, const struct tsr_value *v)
{
	if (v->call.is_new)
		tsr_text_puts(t, "new ");
	show(t, v->call.callee);
	show(t, v->call.args);
	if (v->call.items) {
		tsr_text_puts(t, " += ");
		show(t, v->call.items);
	}
	if (v->call.state) {
		tsr_text_puts(t, " state ");
		show(t, v->call.state);
	}
}

static inline UNUSED void show(struct tsr_text *t, const struct tsr_value *v)
{
	assert_int_equal(v->scratch, 0);
	switch (v->type) {
	case TSR_VALUE_NONE:
		tsr_text_puts(t, "None");
		break;
	case TSR_VALUE_BOOL:
		tsr_text_puts(t, v->boolean ? "True" : "False");
		break;
	case TSR_VALUE_INT:
		show_int(t, v);
		break;
	case TSR_VALUE_FLOAT:
		tsr_text_printf(t, "float %016llx", (unsigned long long)v->real);
		break;
	case TSR_VALUE_BYTES:
		tsr_text_puts(t, "b");
		show_text(t, v);
		break;
	case TSR_VALUE_STRING:
		show_text(t, v);
		break;
	case TSR_VALUE_GLOBAL:
		tsr_text_printf(t, "%s.%s", v->global.module, v->global.name);
		break;
	case TSR_VALUE_CALL:
		show_call(t, v);
		break;
	case TSR_VALUE_PERSISTENT:
		tsr_text_puts(t, "persistent ");
		show(t, v->inner);
		break;
	case TSR_VALUE_TENSOR:
		tsr_text_printf(t, "tensor %zu", v->tensor.array);
		break;
	default:
		show_list(t, v);
	}
}

static inline UNUSED void expect_shown(const struct tsr_value *v, const char *want)
{
	struct tsr_text t = { 0 };

	show(&t, v);
	assert_string_equal(t.bytes, want);
	tsr_text_free(&t);
}

/* Set-up and teardown: *state is an arena that never is full. */
static inline UNUSED int make_arena(void **state)
{
	*state = tsr_arena_new(SIZE_MAX);
	return *state ? 0 : -1;
}

static inline UNUSED int drop_arena(void **state)
{
	tsr_arena_free(*state);
	return 0;
}

#define arena_test(f) cmocka_unit_test_setup_teardown(f, make_arena, drop_arena)

/* A list of any kind, of the values that follow, up to NULL. */
static inline UNUSED struct tsr_value *list_of(struct tsr_arena *a, enum tsr_value_type type, ...)
{
	struct tsr_value *list = tsr_value_new(a, type), *item;
	va_list ap;

	assert_non_null(list);
	va_start(ap, type);
	while ((item = va_arg(ap, struct tsr_value *)) != NULL)
		assert_true(tsr_value_add(a, list, item));
	va_end(ap);
	return list;
}

static inline UNUSED struct tsr_value *call_of(struct tsr_arena *a, const char *module,
					       const char *name, struct tsr_value *args)
{
	struct tsr_value *v = tsr_value_new(a, TSR_VALUE_CALL);

	assert_non_null(v);
	v->call.callee = tsr_value_global(a, module, name);
	v->call.args = args;
	return v;
}

#endif
