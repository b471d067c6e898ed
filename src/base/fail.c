/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of failures. */
#include "base/fail.h"

#include <stdarg.h>
#include <stdio.h>

#include "tersor/escape.h"

const char *tsr_status_text(enum tsr_status status)
{
	switch (status) {
#define X(name, number, text) \
	case name: \
		return text;
		TSR_STATUS_LIST(X)
#undef X
	}
	return "unknown status";
}

const char *tsr_hint_text(enum tsr_hint hint)
{
	switch (hint) {
#define X(name, number, text) \
	case name: \
		return text;
		TSR_HINT_LIST(X)
#undef X
	}
	return "";
}

static void compose(struct tsr_err *err, enum tsr_status code, enum tsr_hint hint, const char *fmt,
		    va_list ap)
{
	char raw[TSR_ERR_MAX];

	if (!err)
		return;
	vsnprintf(raw, sizeof(raw), fmt, ap);
	err->code = code;
	err->hint = hint;
	tsr_escape(err->msg, sizeof(err->msg), raw);
}

enum tsr_status tsr_fail(struct tsr_err *err, enum tsr_status code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	compose(err, code, TSR_HINT_NONE, fmt, ap);
	va_end(ap);
	return code;
}

enum tsr_status tsr_fail_in(struct tsr_err *err, enum tsr_status code, const char *file,
			    const char *kind, const char *name, const char *fmt, ...)
{
	struct tsr_err found;
	va_list ap;

	va_start(ap, fmt);
	compose(&found, code, TSR_HINT_NONE, fmt, ap);
	va_end(ap);
	return tsr_fail(err, code, "%.400s: %s%s%.200s: %s", file, kind, *kind ? " " : "", name,
			found.msg);
}

enum tsr_status tsr_fail_hint(struct tsr_err *err, enum tsr_status code, enum tsr_hint hint,
			      const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	compose(err, code, hint, fmt, ap);
	va_end(ap);
	return code;
}

enum tsr_status tsr_fail_errno(struct tsr_err *err, int errnum, const char *fmt, ...)
{
	char raw[TSR_ERR_MAX], reason_buf[128];
	const char *reason;
	va_list ap;

	if (!err)
		return TSR_E_IO;
	reason = strerror_r(errnum, reason_buf, sizeof(reason_buf)); /* the GNU form */
	va_start(ap, fmt);
	vsnprintf(raw, sizeof(raw), fmt, ap);
	va_end(ap);
	return tsr_fail(err, TSR_E_IO, "%.800s: %s", raw, reason);
}

enum tsr_status tsr_fail_nomem(struct tsr_err *err, const char *what)
{
	return tsr_fail(err, TSR_E_NOMEM, "out of memory for %s", what);
}
