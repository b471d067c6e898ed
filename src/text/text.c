/* SPDX-License-Identifier: Apache-2.0 */
/* A text that grows. */
#include "text/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool make_room(struct tsr_text *t, size_t more)
{
	size_t room = t->room ? t->room : 256;
	char *bytes;

	if (t->failed)
		return false;
	if (more < t->room - t->nbytes)
		return true;
	while (room - t->nbytes <= more) {
		if (room > SIZE_MAX / 2) {
			t->failed = true;
			return false;
		}
		room *= 2;
	}
	bytes = realloc(t->bytes, room);
	if (!bytes) {
		t->failed = true;
		return false;
	}
	t->bytes = bytes;
	t->room = room;
	return true;
}

void tsr_text_put(struct tsr_text *t, const char *bytes, size_t nbytes)
{
	if (!make_room(t, nbytes))
		return;
	memcpy(t->bytes + t->nbytes, bytes, nbytes);
	t->nbytes += nbytes;
	t->bytes[t->nbytes] = '\0';
}

void tsr_text_puts(struct tsr_text *t, const char *s)
{
	tsr_text_put(t, s, strlen(s));
}

void tsr_text_printf(struct tsr_text *t, const char *fmt, ...)
{
	va_list ap;
	int need;

	va_start(ap, fmt);
	need = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (need < 0 || !make_room(t, (size_t)need)) {
		t->failed = true;
		return;
	}
	va_start(ap, fmt);
	vsnprintf(t->bytes + t->nbytes, (size_t)need + 1, fmt, ap);
	va_end(ap);
	t->nbytes += (size_t)need;
}

void tsr_text_free(struct tsr_text *t)
{
	free(t->bytes);
	*t = (struct tsr_text){ 0 };
}
