/* SPDX-License-Identifier: Apache-2.0 */
/* Mutations of pickles, opcode by opcode. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "mutate.h"

/* The argument of an opcode: @width bytes, or where it is @counted as many as these say behind them. */
struct form {
	uint8_t code, width, lines;
	bool counted;
};

static const struct form forms[] = {
	{ 0x80, 1, 0, false }, { 0x95, 8, 0, false }, { 'q', 1, 0, false },  { 'r', 4, 0, false },
	{ 'h', 1, 0, false },  { 'j', 4, 0, false },  { 'J', 4, 0, false },  { 'K', 1, 0, false },
	{ 'M', 2, 0, false },  { 'G', 8, 0, false },  { 0x82, 1, 0, false }, { 0x83, 2, 0, false },
	{ 0x84, 4, 0, false }, { 0x8a, 1, 0, true },  { 0x8b, 4, 0, true },  { 0x8c, 1, 0, true },
	{ 'X', 4, 0, true },   { 0x8d, 8, 0, true },  { 'U', 1, 0, true },   { 'T', 4, 0, true },
	{ 'C', 1, 0, true },   { 'B', 4, 0, true },   { 0x8e, 8, 0, true },  { 0x96, 8, 0, true },
	{ 'c', 0, 2, false },  { 'i', 0, 2, false },  { 'I', 0, 1, false },  { 'L', 0, 1, false },
	{ 'F', 0, 1, false },  { 'S', 0, 1, false },  { 'V', 0, 1, false },  { 'P', 0, 1, false },
	{ 'g', 0, 1, false },  { 'p', 0, 1, false },
};

static const struct form *form_of(uint8_t code)
{
	static const struct form plain;

	for (size_t i = 0; i < sizeof(forms) / sizeof(*forms); i++) {
		if (forms[i].code == code)
			return &forms[i];
	}
	return &plain;
}

static uint64_t little_endian(const uint8_t *p, size_t width)
{
	uint64_t value = 0;

	while (width--)
		value = value << 8 | p[width];
	return value;
}

size_t pickle_op(const uint8_t *p, size_t n, const uint8_t **text_ret, size_t *ntext_ret)
{
	const struct form *f = form_of(*p);
	size_t length = 1 + f->width;
	uint64_t count;

	*text_ret = NULL;
	*ntext_ret = 0;
	if (length > n)
		return n;
	if (f->counted) {
		count = little_endian(p + 1, f->width);
		*ntext_ret = count < n - length ? (size_t)count : n - length;
		*text_ret = p + length;
		return length + *ntext_ret;
	}
	for (unsigned i = 0; i < f->lines; i++) {
		const uint8_t *end = memchr(p + length, '\n', n - length);

		if (!end)
			return n;
		length = (size_t)(end - p) + 1;
	}
	return length;
}

/* --- Opcodes as a list ------------------------------------------------------------------------ */

#define OPS_MAX 20000u

struct ops {
	size_t at[OPS_MAX + 1]; /* and the end */
	size_t n;
};

static struct ops *parse(const struct buffer *b)
{
	static struct ops ops;
	const uint8_t *text;
	size_t at = 0, ntext;

	ops.n = 0;
	while (at < b->nbytes && ops.n < OPS_MAX) {
		ops.at[ops.n++] = at;
		at += pickle_op(b->bytes + at, b->nbytes - at, &text, &ntext);
	}
	ops.at[ops.n] = b->nbytes;
	return &ops;
}

/* Snippets that make or use values; the length is that of the text without the NUL at its end. */
#define SNIPPET(text) { text, sizeof(text) - 1 }
static const struct {
	const char *bytes;
	size_t nbytes;
} snippets[] = {
	SNIPPET("}"), SNIPPET("]"), SNIPPET(")"), SNIPPET("N"), SNIPPET("K\1"), SNIPPET("("), SNIPPET("u"),
	SNIPPET("s"), SNIPPET("a"), SNIPPET("e"), SNIPPET("t"), SNIPPET("h\0"), SNIPPET("h\1"), SNIPPET("q\0"),
	SNIPPET("q\1"), SNIPPET("\x94"), SNIPPET("R"), SNIPPET("Q"), SNIPPET("b"), SNIPPET("2"), SNIPPET("0"),
	SNIPPET("1"), SNIPPET("\x85"), SNIPPET("\x86"), SNIPPET("\x87"), SNIPPET("\x88"), SNIPPET("\x89"),
	SNIPPET("\x8f"), SNIPPET("\x90"), SNIPPET("\x91"), SNIPPET("\x81"), SNIPPET("\x92"), SNIPPET("\x93"),
	SNIPPET("ccollections\nOrderedDict\n)R"), SNIPPET("ctorch._utils\n_rebuild_tensor_v2\n"),
	SNIPPET("ctorch._utils\n_rebuild_parameter\n"), SNIPPET("ctorch\nFloatStorage\n"),
	SNIPPET("ctorch\nBFloat16Storage\n"), SNIPPET("ctorch\nSize\n"), SNIPPET("ctorch\nLongStorage\n"),
	SNIPPET("c__builtin__\nset\n"), SNIPPET("ccollections\ndefaultdict\n"), SNIPPET("X\5\0\0\0state"),
	SNIPPET("X\14\0\0\0param_groups"), SNIPPET("X\6\0\0\0params"), SNIPPET("G?\xf0\0\0\0\0\0\0"),
	SNIPPET("G\x7f\xf8\0\0\0\0\0\0"), SNIPPET("\x8a\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\0"),
	SNIPPET("}(X\5\0\0\0stateX\0\0\0\0u"), SNIPPET("\x8c\1a"), SNIPPET("C\1a"),
	SNIPPET("ctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0"
		"0X\3\0\0\0cpuK\2tQK\0K\2\x85K\1\x85\x89" "ccollections\nOrderedDict\n)RtR"),
};

/* Give a string another text, with its new length before it. */
static void set_text(struct buffer *b, size_t at, const void *text, size_t ntext)
{
	const struct form *f = form_of(b->bytes[at]);
	const uint8_t *old;
	size_t nold;

	pickle_op(b->bytes + at, b->nbytes - at, &old, &nold);
	if (f->width < 8 && ntext >> 8 * f->width)
		return;
	if (!mutate_splice(b, (size_t)(old - b->bytes), nold, text, ntext))
		return;
	for (unsigned i = 0; i < f->width; i++)
		b->bytes[at + 1 + i] = i < sizeof(ntext) ? (uint8_t)(ntext >> 8 * i) : 0;
}

static void change_text(struct buffer *b, const struct ops *ops, size_t at, const uint8_t *text, size_t ntext)
{
	const size_t other = ops->at[mutate_pick(ops->n)];
	uint8_t changed[512];
	const uint8_t *from;
	size_t n;

	pickle_op(b->bytes + other, b->nbytes - other, &from, &n);
	if (mutate_pick(3) == 0 && from && n < sizeof(changed)) {
		memcpy(changed, from, n);
	} else if (mutate_pick(2) == 0) {
		const char *word = mutate_word();

		n = strlen(word);
		memcpy(changed, word, n);
	} else {
		n = ntext < sizeof(changed) / 2 ? ntext : sizeof(changed) / 2;
		memcpy(changed, text, n);
		n = LLVMFuzzerMutate(changed, n, sizeof(changed));
	}
	set_text(b, at, changed, n);
}

static void change_argument(struct buffer *b, const struct ops *ops)
{
	size_t at = ops->at[mutate_pick(ops->n)], ntext;
	const struct form *f;
	const uint8_t *text;
	uint64_t value;

	for (unsigned i = 0; i < 8 && !form_of(b->bytes[at])->width; i++)
		at = ops->at[mutate_pick(ops->n)];
	f = form_of(b->bytes[at]);
	pickle_op(b->bytes + at, b->nbytes - at, &text, &ntext);
	if (text) {
		change_text(b, ops, at, text, ntext);
		return;
	}
	if (at + 1 + f->width > b->nbytes)
		return;
	value = mutate_pick(2) ? mutate_number() : little_endian(b->bytes + at + 1, f->width) + mutate_pick(3) - 1;
	for (unsigned i = 0; i < f->width; i++)
		b->bytes[at + 1 + i] = (uint8_t)(value >> 8 * i);
}

/* Frames say how long they are: until the end of the pickle or the next frame. */
static void mend_frames(struct buffer *b)
{
	const struct ops *ops = parse(b);
	size_t end = b->nbytes;

	for (size_t i = ops->n; i--;) {
		const size_t at = ops->at[i];

		if (b->bytes[at] != 0x95 || at + 9 > b->nbytes)
			continue;
		for (unsigned j = 0; j < 8; j++)
			b->bytes[at + 1 + j] = (uint8_t)((uint64_t)(end - at - 9) >> 8 * j);
		end = at;
	}
}

void mutate_pickle(struct buffer *b)
{
	const struct ops *ops = parse(b);
	const size_t i = mutate_pick(ops->n), at = ops->at[i];
	const size_t j = mutate_pick(ops->n), from = ops->at[j];
	const size_t span = 1 + mutate_pick(mutate_pick(4) ? 4 : 40), snippet = mutate_pick(sizeof(snippets) / sizeof(*snippets));
	const size_t end = ops->at[i + span < ops->n ? i + span : ops->n];
	const size_t from_end = ops->at[j + span < ops->n ? j + span : ops->n];

	switch (mutate_pick(8)) {
	case 0:
		mutate_splice(b, at, end - at, NULL, 0);
		break;
	case 1:
		mutate_splice(b, at, 0, b->bytes + from, from_end - from);
		break;
	case 2:
		mutate_splice(b, at, end - at, b->bytes + from, from_end - from);
		break;
	case 3:
		mutate_splice(b, at, 0, snippets[snippet].bytes, snippets[snippet].nbytes);
		break;
	case 4:
		mutate_splice(b, at, ops->at[i + 1 <= ops->n ? i + 1 : ops->n] - at, snippets[snippet].bytes,
			      snippets[snippet].nbytes);
		break;
	case 5:
		mutate_bytes(b, 0, b->nbytes);
		break;
	default:
		if (ops->n)
			change_argument(b, ops);
	}
	if (mutate_pick(20))
		mend_frames(b);
}
