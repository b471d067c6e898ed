/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TERSOR_STATUS_H
#define TERSOR_STATUS_H

/*
 * What a call can return.  Numbers are pinned; new ones are appended.
 *
 * USAGE      the caller asked for something that does not exist or does not fit together
 * FORMAT     an input is malformed
 * UNSUPPORTED an input is well formed but of a kind that is not handled, or refused on purpose
 * LIMIT      an input goes past a documented limit
 * IO         the operating system refused a file operation
 * NOMEM      out of memory
 * BOUND      the work was done and a bound or comparison that was asked for did not hold
 * CANCELLED  the progress callback asked to stop
 * DURABILITY the output is complete under its name, but may not survive a power cut
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
	X(TSR_E_DURABILITY, 9, "published, durability unknown")

enum tsr_status {
#define X(name, number, text) name = number,
	TSR_STATUS_LIST(X)
#undef X
};

#define TSR_ERR_MAX 1024

/*
 * Why a call failed: one line, already safe to print on a terminal.  Every function that takes a
 * `struct tsr_err *` fills it on failure and leaves it alone on success; NULL is allowed.
 */
struct tsr_err {
	enum tsr_status code;
	char msg[TSR_ERR_MAX];
};

/* The short text of a status.  Never NULL; static storage. */
const char *tsr_status_text(enum tsr_status status);

#endif
