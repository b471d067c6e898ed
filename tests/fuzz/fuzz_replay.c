/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A replay: the input is files (tree.h), of which `c`, or a directory of that name, is the checkpoint, and `r`
 * the recording.  It is refused, or it steps all recorded steps, and what it writes can be read.
 */
#include "fuzz.h"
#include "memory_files.h"
#include "outputs.h"
#include "tersor/recording.h"
#include "tersor/replay.h"
#include "tree.h"

#define IN MEMORY "/in"

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t nbytes, size_t room, unsigned seed)
{
	return tree_mutate(data, nbytes, room, seed);
}

size_t LLVMFuzzerCustomCrossOver(const uint8_t *a, size_t na, const uint8_t *b, size_t nb,
				 uint8_t *out, size_t room, unsigned seed)
{
	return tree_cross(a, na, b, nb, out, room, seed);
}

static void choose(struct tsr_replay_options *o, const uint8_t bits[2])
{
	static const struct tsr_gate gate = { .figure = TSR_FIGURE_UPDATE_NMSE, .limit = 1e30 };
	const struct tsr_pack_options defaults = tsr_pack_defaults();

	if (bits[0] & 7)
		o->optimizer = (enum tsr_optimizer)((bits[0] & 7) % TSR_OPTIMIZER_COUNT);
	o->compare = bits[0] >> 3 & 1;
	o->zero_state = bits[0] >> 4 & 1;
	o->check_numerics = bits[0] >> 5 & 1;
	o->on_nonfinite = bits[0] >> 6 & 1 ? TSR_NONFINITE_SKIP : TSR_NONFINITE_FAIL;
	o->on_missing = bits[0] >> 7 & 1 ? TSR_MISSING_FAIL : TSR_MISSING_SKIP;
	o->decode = bits[1] & 1;
	o->order = (enum tsr_order)(bits[1] >> 1 & 1 ? 1 + bits[0] % (TSR_ORDER_COUNT - 1)
						     : TSR_ORDER_TORCH_CPU);
	o->has_count = bits[1] >> 2 & 1;
	o->count = bits[1] >> 3 & 3;
	if (bits[1] & 0x40) {
		o->coding[0] = defaults.weight;
		o->coding[1] = defaults.momentum;
		o->coding[2] = defaults.variance;
	}
	if (bits[1] & 0x80)
		o->coding[1] = (struct tsr_coding){
			.codec = tsr_codec_find(bits[1] & 0x10 ? "bf16" : "f32"), .group = 1
		};
	if (o->compare) {
		o->gates = &gate;
		o->ngates = 1;
	}
	if (!tsr_hyper_is_set(&o->hyper, TSR_HYPER_LR) && bits[1] & 0x20)
		tsr_hyper_put(&o->hyper, TSR_HYPER_LR, 1e-3);
}

const struct cost_bounds fuzz_cost = { 6000000, 100, 48 << 20, 3000 };

void fuzz_input(const uint8_t *data, size_t nbytes)
{
	static const char *const paths[] = { IN "/c" };
	struct tsr_replay_options o = tsr_replay_defaults();
	const struct tsr_open_options open = tsr_open_defaults();
	static struct tree t;
	struct tsr_replay *r = NULL;
	struct tsr_err err = { 0 };
	enum tsr_status status;

	tree_parse(&t, data, nbytes);
	tree_write(&t, IN);
	memory_make_directory(OUT);
	choose(&o, t.options);
	status = tsr_replay(paths, 1, IN "/r", OUT "/o", &o, &one_thread, &r, &err);
	if (status == TSR_OK) {
		REQUIRE(tsr_replay_nsteps(r) > 0);
		tsr_replay_free(r);
		check_output(OUT "/o", SIZE_MAX, &open);
		return;
	}
	if (status == TSR_E_BOUND)
		tsr_replay_free(r);
	else
		REQUIRE(!r);
	if (status != TSR_E_BOUND)
		check_refused_output(status, &err);
	REQUIRE(memory_count(OUT) == 0);
}
