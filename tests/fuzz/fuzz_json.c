/* SPDX-License-Identifier: Apache-2.0 */
/* The strict JSON scan and what cJSON makes of what passes it: the input is a text. */
#include <stdlib.h>
#include <string.h>

#include "text/json.h"
#include "base/utf8.h"
#include "format/safetensors.h"
#include "fuzz.h"

/* The parsed tree against the rules. */
struct walk {
	const struct tsr_json_rules *rules;
	size_t nvalues;
	bool any_number; /* in a header's __metadata__, whose values a later check wants as strings */
	struct tsr_text *out; /* the same tree, written */
};

static void check_utf8(const char *s)
{
	size_t left = strlen(s), len;
	uint32_t codepoint;

	for (; left; s += len, left -= len) {
		len = tsr_utf8_next(s, left, &codepoint);
		REQUIRE(len > 0);
	}
}

static void check_number(const struct walk *w, const struct tsr_json *v, const char *key)
{
	uint64_t integer;
	double value;

	REQUIRE(tsr_json_double(v, &value));
	if (w->rules->integers_only && !w->any_number)
		REQUIRE(tsr_json_u64(v, &integer) && (double)integer == value);
	/* It is written the same however often it is read back. */
	tsr_json_put_exact(w->out, key, value);
}

static void walk(struct walk *w, const struct tsr_json *v, const char *key, unsigned depth);

static void walk_children(struct walk *w, const struct tsr_json *v, bool object, unsigned depth)
{
	unsigned n = 0;

	for (const struct tsr_json *c = tsr_json_first(v); c; c = tsr_json_next(c)) {
		if (object) {
			check_utf8(tsr_json_key(c));
			/* The first with its key is itself: no duplicates.  It takes linear time. */
			if (n++ < 50)
				REQUIRE(tsr_json_get(v, tsr_json_key(c)) == c);
		}
		if (depth == 1)
			w->any_number = object && strcmp(tsr_json_key(c), "__metadata__") == 0;
		walk(w, c, object ? tsr_json_key(c) : NULL, depth + 1);
	}
}

/* Recurses as deep as the rules allow. */
static void walk(struct walk *w, const struct tsr_json *v, const char *key, unsigned depth)
{
	const enum tsr_json_type type = tsr_json_type(v);

	REQUIRE(depth <= w->rules->max_depth && w->nvalues++ < w->rules->max_values);
	switch (type) {
	case TSR_JSON_NULL:
	case TSR_JSON_BOOL:
		tsr_json_put_null(w->out, key);
		break;
	case TSR_JSON_NUMBER:
		check_number(w, v, key);
		break;
	case TSR_JSON_STRING:
		check_utf8(tsr_json_string(v));
		tsr_json_put_string(w->out, key, tsr_json_string(v));
		break;
	case TSR_JSON_ARRAY:
	case TSR_JSON_OBJECT:
		tsr_json_open(w->out, key, type == TSR_JSON_OBJECT ? '{' : '[');
		walk_children(w, v, type == TSR_JSON_OBJECT, depth);
		tsr_json_close(w->out, type == TSR_JSON_OBJECT ? '}' : ']');
		break;
	}
}

/* Write the tree of a text that was accepted. */
static void rewrite(const struct tsr_json *root, const struct tsr_json_rules *rules,
		    struct tsr_text *out)
{
	struct walk w = { .rules = rules, .out = out };

	walk(&w, root, NULL, 1);
	REQUIRE(!out->failed);
}

/* Returns whether the text was accepted. */
static bool parse(const char *text, size_t nbytes, const struct tsr_json_rules *rules)
{
	struct tsr_json *const untouched = (struct tsr_json *)(void *)&nbytes;
	struct tsr_json *root = untouched;
	struct tsr_text once = { 0 }, twice = { 0 };
	struct tsr_json_rules open = *rules;
	struct tsr_err err;
	const enum tsr_status status = tsr_json_parse(text, nbytes, rules, &root, &err);

	REQUIRE(tsr_json_check(text, nbytes, rules, NULL) == status);
	if (status != TSR_OK) {
		REQUIRE(root == untouched && err.code == status);
		return false;
	}
	rewrite(root, rules, &once);
	tsr_json_free(root);
	/* What is written is accepted, and written the same again. */
	open.integers_only = false;
	REQUIRE(tsr_json_parse(once.bytes, once.nbytes, &open, &root, &err) == TSR_OK);
	rewrite(root, &open, &twice);
	REQUIRE(twice.nbytes == once.nbytes && memcmp(twice.bytes, once.bytes, once.nbytes) == 0);
	tsr_json_free(root);
	tsr_text_free(&once);
	tsr_text_free(&twice);
	return true;
}

const struct cost_bounds fuzz_cost = { 1000000, 250, 1 << 20, 300 };

void fuzz_input(const uint8_t *data, size_t size)
{
	const struct tsr_json_rules header = tsr_st_rules("input");
	const struct tsr_json_rules open = {
		.file = "input",
		.part = "text",
		.max_depth = 16,
		.max_values = TSR_ST_VALUES_MAX,
	};
	const bool is_header = parse((const char *)data, size, &header);
	const bool is_json = parse((const char *)data, size, &open);

	REQUIRE(is_json || !is_header);
}
