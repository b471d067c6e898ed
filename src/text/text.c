/* SPDX-License-Identifier: Apache-2.0 */
/* A text that grows. */
#include "text/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool fail(struct tsr_text *t)
{
	t->failed = true;
	t->room = t->nbytes;
	return false;
}

bool tsr_text_grow(struct tsr_text *t, size_t more)
{
	size_t room = t->room ? t->room : 256;
	char *bytes;

	if (t->failed)
		return false;
	while (room - t->nbytes <= more) {
		if (room > SIZE_MAX / 2)
			return fail(t);
		room *= 2;
	}
	bytes = realloc(t->bytes, room);
	if (!bytes)
		return fail(t);
	t->bytes = bytes;
	t->room = room;
	return true;
}

void tsr_text_puts(struct tsr_text *t, const char *s)
{
	tsr_text_put(t, s, strlen(s));
}

void tsr_text_vprintf(struct tsr_text *t, const char *fmt, va_list ap)
{
	const size_t room = t->room - t->nbytes;
	va_list again;
	int need;

	va_copy(again, ap);
	need = vsnprintf(room ? t->bytes + t->nbytes : NULL, room, fmt, ap);
	if (need < 0)
		fail(t);
	else if ((size_t)need < room)
		t->nbytes += (size_t)need;
	else if (tsr_text_grow(t, (size_t)need)) /* it did not fit */
		t->nbytes += (size_t)vsnprintf(t->bytes + t->nbytes, (size_t)need + 1, fmt, again);
	va_end(again);
}

void tsr_text_printf(struct tsr_text *t, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	tsr_text_vprintf(t, fmt, ap);
	va_end(ap);
}

void tsr_text_free(struct tsr_text *t)
{
	free(t->bytes);
	*t = (struct tsr_text){ 0 };
}
