/* SPDX-License-Identifier: Apache-2.0 */
/* The keys that lead to a value, kept as they are; text is made of them only for what needs a name. */
#ifndef TSR_NAMES_KEY_PATH_H
#define TSR_NAMES_KEY_PATH_H

#include "format/value.h"
#include "text/text.h"

/* The levels of a value, and what names put in front of them; a level can take two steps. */
#define TSR_KEY_PATH_MAX (2 * TSR_VALUE_DEPTH_MAX + 8)

struct tsr_key_step {
	const char *bytes; /* NULL: a number, or no part of a name */
	size_t nbytes;
	const uint64_t *real; /* bits of a number that is a float; or NULL */
	int64_t number;
	bool nameless; /* a key that is neither text nor a number: its place stands for it, "(3)" */
};

/* Start from all zeros. */
struct tsr_key_path {
	size_t n;
	struct tsr_key_step steps[TSR_KEY_PATH_MAX];
	struct tsr_text text; /* what tsr_key_path_text() made */
};

/*
 * One step more.  Nothing is read of a key but its type, so a key of any length costs the same.
 * @index: the key's place among those around it.
 */
void tsr_key_path_push(struct tsr_key_path *p, const struct tsr_value *key, size_t index);
void tsr_key_path_push_bytes(struct tsr_key_path *p, const char *bytes, size_t nbytes);
void tsr_key_path_push_index(struct tsr_key_path *p, size_t index);

/*
 * The steps joined with dots, in @p->text.  *from_ret (may be NULL): where the steps behind the
 * first @dropped begin.  TSR_E_LIMIT, before anything is copied, for more than TSR_NAME_MAX bytes.
 */
enum tsr_status tsr_key_path_text(struct tsr_key_path *p, size_t dropped, size_t *from_ret,
				  const char *file, struct tsr_err *err);

void tsr_key_path_free(struct tsr_key_path *p);

#endif
