/* SPDX-License-Identifier: Apache-2.0 */
/* Status codes, and the message of a failure. */
#ifndef TERSOR_STATUS_H
#define TERSOR_STATUS_H

#include "tersor/api.h"

/*
 * What a call can return.  Numbers are pinned; new ones are appended.
 *
 * USAGE      the caller asked for something that does not exist or does not fit together
 * FORMAT     an input is malformed
 * UNSUPPORTED an input is well formed, but of a kind that is not handled, or is refused on purpose
 * LIMIT      an input exceeds a documented limit
 * IO         the operating system refused a file operation
 * NOMEM      out of memory
 * BOUND      the work was done and a bound or comparison that was asked for did not hold
 * CANCELLED  the progress callback asked to stop
 * DURABILITY the output is complete under its name, but may not survive a power cut
 * PART_DONE  the part of the work that was asked for is done, and no more was: not a failure
 */
#define TSR_STATUS_LIST(X) \
	X(TSR_OK, 0, "success") \
	X(TSR_E_USAGE, 1, "invalid request") \
	X(TSR_E_FORMAT, 2, "malformed input") \
	X(TSR_E_UNSUPPORTED, 3, "unsupported input") \
	X(TSR_E_LIMIT, 4, "limit exceeded") \
	X(TSR_E_IO, 5, "input/output error") \
	X(TSR_E_NOMEM, 6, "out of memory") \
	X(TSR_E_BOUND, 7, "bound not met") \
	X(TSR_E_CANCELLED, 8, "cancelled") \
	X(TSR_E_DURABILITY, 9, "published, durability unknown") \
	X(TSR_PART_DONE, 10, "part done")

enum tsr_status {
#define X(name, number, text) name = number,
	TSR_STATUS_LIST(X)
#undef X
};

/*
 * What a caller can change so that the call does what was meant: a code, since only the caller knows
 * what its own user calls the setting.  The text names the member of the options that helps.
 * Numbers are pinned; new ones are appended.
 */
#define TSR_HINT_LIST(X) \
	X(TSR_HINT_NONE, 0, "") \
	X(TSR_HINT_FORCE, 1, "force replaces an existing output") \
	X(TSR_HINT_FOLLOW_LINKS, 2, "follow allows symbolic links") \
	X(TSR_HINT_DTYPE, 3, "as says what opaque elements hold") \
	X(TSR_HINT_STRICT, 4, "only strict refuses this") \
	X(TSR_HINT_RULES, 5, "rules settle what a tensor is") \
	X(TSR_HINT_PARAMS, 6, "params lists the parameters in the optimizer's order") \
	X(TSR_HINT_PACK_COMPAT, 7, "pack in FlashOptim's form first") \
	X(TSR_HINT_SCALAR_WEIGHT, 8, "a rule can make a tensor without dimensions a weight") \
	X(TSR_HINT_OPTIMIZER, 9, "optimizer names it") \
	X(TSR_HINT_ORDER, 10, "order_given says that flashoptim is as meant") \
	X(TSR_HINT_LR, 11, "lr or schedule gives it") \
	X(TSR_HINT_STEPS, 12, "first_step and last_step choose the steps") \
	X(TSR_HINT_FIRST_STEP, 13, "first_step or count settles it") \
	X(TSR_HINT_COUNT, 14, "count says how many steps a state has seen") \
	X(TSR_HINT_COUNT_OR_ZERO, 15, "count and zero_state exclude each other") \
	X(TSR_HINT_ZERO_STATE, 16, "zero_state starts without a state") \
	X(TSR_HINT_SKIP_MISSING, 17, "on_missing leaves such parameters as they are") \
	X(TSR_HINT_SKIP_NONFINITE, 18, "on_nonfinite leaves such steps out") \
	X(TSR_HINT_PACK_STATE, 19, "coding of the weight packs them") \
	X(TSR_HINT_DECODE, 20, "container writes it decoded") \
	X(TSR_HINT_CPU, 21, "gpu below 0 runs on the CPU") \
	X(TSR_HINT_UNPACK, 22, "tsr_unpack() restores its checkpoint") \
	X(TSR_HINT_OPAQUE, 23, "opaque carries such objects or leaves them out") \
	X(TSR_HINT_FEW, 24, "few accepts it") \
	X(TSR_HINT_CANDIDATES, 25, "smaller candidates, also for weights, or a larger max_nbytes") \
	X(TSR_HINT_BASE, 26, "base is the file that a delta differs from") \
	X(TSR_HINT_CHAIN, 27, "max_chain allows more deltas in a row") \
	X(TSR_HINT_PACKED_DIRECTORY, 28, "tsr_unpack_directory() restores it") \
	X(TSR_HINT_PACK_CODED, 29, "tsr_pack() with coded packs and codes it") \
	X(TSR_HINT_PACK_BASE, 30, "tsr_pack() of the base has its weights as BF16") \
	X(TSR_HINT_PACK, 31, "tsr_pack() packs it")

enum tsr_hint {
#define X(name, number, text) name = number,
	TSR_HINT_LIST(X)
#undef X
};

#define TSR_ERR_MAX 1024

/*
 * Why a call failed: one line without a newline, safe to print on a terminal.  Every function that takes a
 * `struct tsr_err *` fills it on failure and leaves it alone on success; NULL is allowed.
 */
struct tsr_err {
	enum tsr_status code; /* as returned */
	char msg[TSR_ERR_MAX];
	enum tsr_hint hint; /* what would help */
};

/* The short text of a status.  Never NULL; static storage. */
TSR_API const char *tsr_status_text(enum tsr_status status);

/* The text of a hint, for messages to programmers.  Never NULL; static storage. */
TSR_API const char *tsr_hint_text(enum tsr_hint hint);

#endif
