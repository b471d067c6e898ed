/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of failures, and what nearly every file of the library has of the C library. */
#ifndef TSR_BASE_FAIL_H
#define TSR_BASE_FAIL_H

/* Before what other machines may lack: they are refused in words. */
#include "base/platform.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/scope.h"
#include "tersor/status.h"

/*
 * Compose the message of a failure, where the fact is known, and return `code`.
 * The text is escaped as by tsr_escape(), so names from a file can be passed as they are.
 */
enum tsr_status tsr_fail(struct tsr_err *err, enum tsr_status code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* The same about a part of a file: "FILE: KIND NAME: " goes before; @kind may be "". */
enum tsr_status tsr_fail_in(struct tsr_err *err, enum tsr_status code, const char *file,
			    const char *kind, const char *name, const char *fmt, ...)
	__attribute__((format(printf, 6, 7)));

/* As tsr_fail(), with a hint at what the caller can change.  Messages themselves name no option of a tool. */
enum tsr_status tsr_fail_hint(struct tsr_err *err, enum tsr_status code, enum tsr_hint hint,
			      const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* As tsr_fail(), with ": " and the text of errno value `errnum` at the end; TSR_E_IO. */
enum tsr_status tsr_fail_errno(struct tsr_err *err, int errnum, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* TSR_E_NOMEM for `what`. */
enum tsr_status tsr_fail_nomem(struct tsr_err *err, const char *what);

/* Whether an output is complete, after which there is an outcome. */
static inline bool tsr_is_written(enum tsr_status status)
{
	return status == TSR_OK || status == TSR_E_DURABILITY;
}

/* Zeroed memory for @n items in *ret, to be freed; NULL and TSR_E_NOMEM for `what` if there is none. */
#define TSR_NEW(ret, n, err, what) \
	((*(ret) = calloc((n), sizeof(**(ret)))) ? TSR_OK : tsr_fail_nomem((err), (what)))

/* Run `call`; forward its status to the caller of this function unless it is TSR_OK. */
#define TSR_TRY(call) \
	do { \
		enum tsr_status try_status_ = (call); \
		if (try_status_ != TSR_OK) \
			return try_status_; \
	} while (0)

/* Run `call` for its status unless a step before it failed, where something must be freed in any case. */
#define TSR_THEN(status, call) \
	do { \
		if ((status) == TSR_OK) \
			(status) = (call); \
	} while (0)

/* The end of a function that made @thing, which TSR_OWNED() would give back: *@ret has it. */
#define TSR_GIVE(ret, thing) (*(ret) = (thing), (thing) = NULL, TSR_OK)

/* The end of a function that makes @thing: *@ret is that, or it is given back after a failure; @status. */
#define TSR_MADE(status, ret, thing, give_back) \
	((status) == TSR_OK ? (void)(*(ret) = (thing)) : give_back(thing), (status))

#endif
