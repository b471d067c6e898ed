/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_TESTS_MUTATE_H
#define TSR_TESTS_MUTATE_H

/* Mutations that know what they change, so that the result reaches further than the first check. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of which @nbytes of @room are used. */
struct buffer {
	uint8_t *bytes;
	size_t nbytes, room;
};

/* Replace @remove bytes at @at by others, which may be of the buffer; false without a change if it does not fit. */
bool mutate_splice(struct buffer *b, size_t at, size_t remove, const void *bytes, size_t nbytes);

/* A number below @n, 0 for 0. */
size_t mutate_pick(size_t n);
void mutate_seed(unsigned seed);

/* Numbers at which code is likely to be wrong. */
uint64_t mutate_number(void);

/* Some bytes of a part of the buffer, by libFuzzer. */
void mutate_bytes(struct buffer *b, size_t at, size_t nbytes);

/* JSON and lines of text: tokens are changed, copied, removed. */
void mutate_text(struct buffer *b);

/* Opcodes of a pickle are removed, copied, inserted, and their arguments changed. */
void mutate_pickle(struct buffer *b);

/* Members of an archive are renamed, removed, copied and mutated, and it is written anew around them. */
void mutate_zip(struct buffer *b);

/* Whatever it looks like. */
void mutate_file(struct buffer *b);

/* A name or key that means something to the library. */
const char *mutate_word(void);

/* The length of the opcode at @p with its argument, at most @n; @text_ret: of its string, *ntext_ret bytes. */
size_t pickle_op(const uint8_t *p, size_t n, const uint8_t **text_ret, size_t *ntext_ret);

#endif
