/* SPDX-License-Identifier: Apache-2.0 */
/* Mutations of texts, and the choice of one. */
#include "mutate.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"

static uint64_t state = 1;

void mutate_seed(unsigned seed)
{
	state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
}

size_t mutate_pick(size_t n)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return n ? (size_t)((state >> 11) % n) : 0;
}

uint64_t mutate_number(void)
{
	const unsigned bits = (unsigned)mutate_pick(64);

	switch (mutate_pick(4)) {
	case 0:
		return mutate_pick(10);
	case 1:
		return (UINT64_C(1) << bits) - 1 + mutate_pick(3);
	case 2:
		return mutate_pick(300);
	default:
		return UINT64_MAX - mutate_pick(3);
	}
}

bool mutate_splice(struct buffer *b, size_t at, size_t remove, const void *bytes, size_t nbytes)
{
	uint8_t *copy;

	if (at > b->nbytes || remove > b->nbytes - at || b->nbytes - remove > b->room ||
	    nbytes > b->room - (b->nbytes - remove))
		return false;
	copy = malloc(nbytes + 1);
	REQUIRE(copy);
	if (nbytes)
		memcpy(copy, bytes, nbytes);
	memmove(b->bytes + at + nbytes, b->bytes + at + remove, b->nbytes - at - remove);
	if (nbytes)
		memcpy(b->bytes + at, copy, nbytes);
	b->nbytes += nbytes - remove;
	free(copy);
	return true;
}

void mutate_bytes(struct buffer *b, size_t at, size_t nbytes)
{
	const size_t room = nbytes + 64;
	uint8_t *part = malloc(room);
	size_t n;

	REQUIRE(part);
	if (nbytes)
		memcpy(part, b->bytes + at, nbytes);
	n = LLVMFuzzerMutate(part, nbytes, room);
	mutate_splice(b, at, nbytes, part, n);
	free(part);
}

/* Names and keys that the library looks for. */
static const char *const words[] = {
	"model", "optimizer", "state", "param_groups", "params", "module", "state_dict", "step", "exp_avg",
	"exp_avg_sq", "momentum_buffer", "max_exp_avg_sq", "master_weights", "weight", "bias", "lr", "betas",
	"latest", "mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt",
	"bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt", "optimizer_state_dict", "base_optimizer_state",
	"single_partition_of_fp32_groups", "partition_count", "zero_stage", "param_shapes", "group_paddings",
	"fp32_flat_groups", "param_slice_mappings", "ds_config", "universal_checkpoint_info", "fp32.pt",
	"exp_avg.pt", "exp_avg_sq.pt", "zero", "model.safetensors", "model.safetensors.index.json",
	"optimizer.pt", "optimizer.bin", "scheduler.pt", "pytorch_model.bin", "trainer_state.json",
	"pytorch_model_fsdp_0", "optimizer_0", ".metadata", "__0_0.distcp", "__1_0.distcp", "common.pt",
	"metadata.json", "latest_checkpointed_iteration.txt", "model_optim_rng.pt", "iter_0000010",
	"mp_rank_00", "distrib_optim.pt", "adapter_model.safetensors", "adapter_config.json", "tersor.json",
	"manifest.json", "format", "version", "steps", "files", "groups", "weight_map", "metadata",
	"total_size", "__metadata__", "dtype", "shape", "data_offsets", "F32", "BF16", "F16", "I64", "U8",
	"tersor", "tersor_tree", "tersor_generation", "DCP_SHARDING_INFO", "storage", "FloatStorage", "torch",
	"torch._utils", "_rebuild_tensor_v2", "collections", "OrderedDict", "_metadata", "absmax1", "qmap1",
	"state1", "state2", "exp_avg.scales", "exp_avg.quantized", "fp32_param", "0", "1", "..", ".", "/", "",
	"a.b", "data.pkl", "byteorder", "byteorderlittle", "data/0", "version3", "tersor-recording",
};

const char *mutate_word(void)
{
	return words[mutate_pick(sizeof(words) / sizeof(*words))];
}

/* --- Texts ------------------------------------------------------------------------------------ */

/* The token that @at is in: a string with its quotes, a word or number, or one other character. */
static void token_at(const struct buffer *b, size_t at, size_t *start_ret, size_t *n_ret)
{
	size_t start = at, end = at;

	while (start && b->bytes[start - 1] != '"' && at - start < 200)
		start--;
	while (end < b->nbytes && b->bytes[end] != '"' && end - at < 200)
		end++;
	if (start && end < b->nbytes && b->bytes[start - 1] == '"' && b->bytes[end] == '"' &&
	    !memchr(b->bytes + start, ':', end - start) && !memchr(b->bytes + start, ',', end - start)) {
		*start_ret = start - 1;
		*n_ret = end - start + 2;
		return;
	}
	start = end = at;
	while (start && isalnum(b->bytes[start - 1]))
		start--;
	while (end < b->nbytes && isalnum(b->bytes[end]))
		end++;
	*start_ret = start;
	*n_ret = end > start ? end - start : 1;
}

/* From here to behind the comma or bracket that ends what is here. */
static size_t part_length(const struct buffer *b, size_t at)
{
	size_t depth = 0;

	for (size_t i = at; i < b->nbytes; i++) {
		const uint8_t c = b->bytes[i];

		if (c == '{' || c == '[')
			depth++;
		if ((c == '}' || c == ']') && (!depth || !--depth))
			return i + 1 - at;
		if ((c == ',' || c == '\n') && !depth)
			return i + 1 - at;
	}
	return b->nbytes - at;
}

void mutate_text(struct buffer *b)
{
	size_t at = mutate_pick(b->nbytes), n, from, nfrom;
	char text[64];

	if (!b->nbytes) {
		mutate_bytes(b, 0, 0);
		return;
	}
	token_at(b, at, &at, &n);
	token_at(b, mutate_pick(b->nbytes), &from, &nfrom);
	switch (mutate_pick(7)) {
	case 0:
		snprintf(text, sizeof(text), "%" PRIu64, mutate_number());
		mutate_splice(b, at, n, text, strlen(text));
		break;
	case 1:
		snprintf(text, sizeof(text), "\"%.60s\"", mutate_word());
		mutate_splice(b, at, n, text, strlen(text));
		break;
	case 2:
		mutate_splice(b, at, n, b->bytes + from, nfrom);
		break;
	case 3:
		mutate_splice(b, at, part_length(b, at), NULL, 0);
		break;
	case 4:
		mutate_splice(b, at, 0, b->bytes + from, part_length(b, from));
		break;
	case 5:
		mutate_bytes(b, at, n);
		break;
	default:
		mutate_bytes(b, 0, b->nbytes);
	}
}

/* --- Any file --------------------------------------------------------------------------------- */

void mutate_file(struct buffer *b)
{
	const uint8_t *at = b->bytes;

	if (b->nbytes > 4 && memcmp(at, "PK\3\4", 4) == 0)
		mutate_zip(b);
	else if (b->nbytes > 2 && at[0] == 0x80 && at[1] >= 2 && at[1] <= 5)
		mutate_pickle(b);
	else if (b->nbytes && (at[0] == '{' || (isprint(at[0]) && isprint(at[b->nbytes / 2]))))
		mutate_text(b);
	else
		mutate_bytes(b, 0, b->nbytes);
}
