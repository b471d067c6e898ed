/* SPDX-License-Identifier: Apache-2.0 */
/* A text that grows. */
#ifndef TSR_TEXT_TEXT_H
#define TSR_TEXT_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A growing text.  Start from all zeros.  If an allocation fails, `failed` is set and further calls
 * do nothing; whoever uses the text checks it once.
 */
struct tsr_text {
	char *bytes; /* NUL-terminated once something was put */
	size_t nbytes;
	size_t room;
	bool failed;
};

void tsr_text_put(struct tsr_text *t, const char *bytes, size_t nbytes);
void tsr_text_puts(struct tsr_text *t, const char *s);
void tsr_text_printf(struct tsr_text *t, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void tsr_text_free(struct tsr_text *t);

#endif
