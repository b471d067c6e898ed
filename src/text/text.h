/* SPDX-License-Identifier: Apache-2.0 */
/* A text that grows. */
#ifndef TSR_TEXT_TEXT_H
#define TSR_TEXT_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/*
 * A growing text.  Start from all zeros.  If an allocation fails, `failed` is set and further calls
 * do nothing; whoever uses the text checks it once.
 */
struct tsr_text {
	char *bytes; /* NUL-terminated once something was put */
	size_t nbytes;
	size_t room; /* of @bytes; none is left once it failed */
	bool failed;
};

/* Make room for @more bytes and a NUL; false, and the text has failed, when out of memory. */
bool tsr_text_grow(struct tsr_text *t, size_t more);

/* Headers of many tensors are made of millions of small pieces. */
static inline void tsr_text_put(struct tsr_text *t, const char *bytes, size_t nbytes)
{
	if (nbytes >= t->room - t->nbytes && !tsr_text_grow(t, nbytes))
		return;
	memcpy(t->bytes + t->nbytes, bytes, nbytes);
	t->nbytes += nbytes;
	t->bytes[t->nbytes] = '\0';
}

static inline void tsr_text_putc(struct tsr_text *t, char c)
{
	tsr_text_put(t, &c, 1);
}

void tsr_text_puts(struct tsr_text *t, const char *s);
void tsr_text_printf(struct tsr_text *t, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void tsr_text_vprintf(struct tsr_text *t, const char *fmt, va_list ap)
	__attribute__((format(printf, 2, 0)));
void tsr_text_free(struct tsr_text *t);

#endif
