/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order in which known architectures define their parameters.  safetensors does not keep it, but
 * an optimizer numbers parameters by it.  A module has its children in the order in which its class
 * defines them, numbered ones by number, so the order of siblings settles everything.
 */
#include "names/optimizer_ids.h"

#include "base/arena.h"
#include "base/fail.h"
#include "text/bytes.h"
#include "text/named.h"
#include "text/text.h"

/* Siblings in order, one row per line.  No component stands in two rows of one architecture. */
static const char *const llama[] = {
	"model lm_head score",
	"embed_tokens layers norm",
	"self_attn mlp input_layernorm post_attention_layernorm "
	"pre_feedforward_layernorm post_feedforward_layernorm",
	"q_proj k_proj v_proj o_proj q_norm k_norm",
	"gate_proj up_proj down_proj",
	"weight bias",
	"lora_A lora_B",
	NULL,
};

static const char *const gemma4[] = {
	"model lm_head score",
	"embed_tokens layers norm",
	"self_attn mlp input_layernorm post_attention_layernorm "
	"pre_feedforward_layernorm post_feedforward_layernorm",
	"q_proj q_norm k_norm k_proj v_proj o_proj",
	"gate_proj up_proj down_proj",
	"weight bias",
	"lora_A lora_B",
	NULL,
};

/* Adapters of this one can have the same names as those of Llama. */
static const char *const opt[] = {
	"k_proj v_proj q_proj out_proj", "self_attn fc1 fc2", "weight bias", "lora_A lora_B", NULL,
};

static const char *const gpt2[] = {
	"transformer lm_head score",
	"wte wpe h ln_f",
	"ln_1 attn ln_2 mlp",
	"c_attn c_fc c_proj",
	"weight bias",
	"lora_A lora_B",
	NULL,
};

static const char *const bert[] = {
	"bert classifier",
	"embeddings encoder pooler",
	"self attention intermediate output",
	"query key value",
	"word_embeddings position_embeddings token_type_embeddings dense LayerNorm",
	"weight bias",
	"lora_A lora_B",
	NULL,
};

static const struct {
	const char *name;
	const char *const *siblings;
} architectures[] = {
	{ "Llama", llama }, { "Gemma 4", gemma4 }, { "OPT", opt },
	{ "GPT-2", gpt2 },  { "BERT", bert },
};

size_t tsr_architecture_count(void)
{
	return sizeof(architectures) / sizeof(*architectures);
}

const char *tsr_architecture_name(size_t architecture)
{
	return architectures[architecture].name;
}

/* The row of a component in the table and its place there; false if it is in none. */
static bool find_sibling(const char *const *siblings, const char *component, size_t len,
			 unsigned *row_ret, unsigned *place_ret)
{
	for (unsigned row = 0; siblings[row]; row++) {
		const size_t place = tsr_word_place(siblings[row], component, len);

		if (place == SIZE_MAX)
			continue;
		*row_ret = row;
		*place_ret = (unsigned)place;
		return true;
	}
	return false;
}

static bool is_number(const char *component, size_t len)
{
	uint64_t number;

	return len < 10 && tsr_digits(component, len, UINT64_MAX, &number);
}

/* A text that sorts as the name is to: numbers by value, siblings by their place. */
static const char *sort_key(struct tsr_arena *arena, const char *const *siblings, const char *name)
{
	TSR_SCOPED(tsr_text_free) struct tsr_text key = { 0 };
	unsigned row, place;

	for (const char *at = name; *at;) {
		const size_t len = strcspn(at, ".");

		if (is_number(at, len))
			tsr_text_printf(&key, "1%010lu.", strtoul(at, NULL, 10));
		else if (find_sibling(siblings, at, len, &row, &place))
			tsr_text_printf(&key, "2%02u%02u.", row, place);
		else
			tsr_text_printf(&key, "3%.*s.", (int)len, at);
		at += len + (at[len] == '.');
	}
	return key.failed ? NULL : tsr_arena_copy(arena, key.bytes, key.nbytes);
}

/* Whether the table says in which order two names stand: what they first differ in is in one row. */
static bool are_ordered(const char *const *siblings, const char *a, const char *b)
{
	unsigned place, a_row, b_row;

	for (;;) {
		const size_t na = strcspn(a, "."), nb = strcspn(b, ".");

		if (na != nb || memcmp(a, b, na) != 0) {
			if (is_number(a, na) && is_number(b, nb))
				return true;
			return find_sibling(siblings, a, na, &a_row, &place) &&
			       find_sibling(siblings, b, nb, &b_row, &place) && a_row == b_row;
		}
		if (!a[na] || !b[nb])
			return false;
		a += na + 1;
		b += nb + 1;
	}
}

enum tsr_status tsr_architecture_sort(size_t architecture, const char *const *names, size_t n,
				      size_t *order, bool *applies_ret, struct tsr_err *err)
{
	TSR_OWNED(tsr_arena_free) struct tsr_arena *arena = tsr_arena_new(SIZE_MAX);
	const char *const *siblings = architectures[architecture].siblings;
	struct tsr_named *keys;

	*applies_ret = false;
	TSR_TRY(TSR_TAKE(&keys, n + 1, arena, err, "architecture"));
	for (size_t i = 0; i < n; i++) {
		keys[i] = (struct tsr_named){ sort_key(arena, siblings, names[i]), i };
		if (!keys[i].name)
			return tsr_fail_nomem(err, names[i]);
	}
	*applies_ret = true;
	tsr_named_sort(keys, n);
	for (size_t i = 0; i < n; i++) {
		order[i] = keys[i].index;
		if (i && !are_ordered(siblings, names[order[i - 1]], names[order[i]]))
			*applies_ret = false;
	}
	return TSR_OK;
}
