/* SPDX-License-Identifier: Apache-2.0 */
/* What a function gives back wherever it returns: the declaration of the variable says how. */
#ifndef TSR_BASE_SCOPE_H
#define TSR_BASE_SCOPE_H

#include <stdlib.h>
#include <string.h>

/*
 * Before the declaration of a local variable, which must have an initializer: @give_back is called where its
 * scope ends, in the reverse order of declarations, after the value of `return` is computed.
 * TSR_OWNED(free) is for a pointer that is passed; one that is handed on is set to NULL.
 * TSR_SCOPED(tsr_text_free) is for a variable whose address is passed.
 */
#define TSR_OWNED(give_back) __attribute__((cleanup(give_back##_owned)))
#define TSR_SCOPED(give_back) __attribute__((cleanup(give_back)))

/* Behind the declaration of a function of one pointer, which may be NULL: TSR_OWNED() takes its name. */
#define TSR_OWNED_BY(give_back, type) \
	static inline void give_back##_owned(type **p) \
	{ \
		give_back(*p); \
	}

/* Of a pointer to anything, at @p. */
static inline void free_owned(void *p)
{
	void *memory;

	memcpy(&memory, p, sizeof(memory));
	free(memory);
}

#endif
