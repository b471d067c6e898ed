/* SPDX-License-Identifier: Apache-2.0 */
/* A pickle that is being written; only for the files that write pickles. */
#ifndef TSR_FORMAT_PICKLE_WRITER_H
#define TSR_FORMAT_PICKLE_WRITER_H

#include "format/pickle.h"
#include "text/map.h"

/* Strings that every tensor has. */
enum tsr_pickle_word { TSR_WORD_STORAGE, TSR_WORD_CPU, TSR_WORD_LATIN1, TSR_PICKLE_WORDS };

struct tsr_pickle_writer {
	struct tsr_text *out;
	const struct tsr_pickle_tensor *tensors;
	const char *where;
	struct tsr_err *err;
	uint32_t nmemo;
	struct tsr_map known; /* of struct known */
	uint32_t words[TSR_PICKLE_WORDS]; /* 1 + memo id, or 0 */
};

/* An opcode; one with a little-endian operand. */
void tsr_pickle_put_op(struct tsr_pickle_writer *w, unsigned char op);
void tsr_pickle_put_with(struct tsr_pickle_writer *w, unsigned char op, uint64_t value,
			 size_t nbytes);

/* The value at the top of the stack goes into the memo; returns its id. */
uint32_t tsr_pickle_put_memo(struct tsr_pickle_writer *w);
void tsr_pickle_put_from_memo(struct tsr_pickle_writer *w, uint32_t id);

/* Values; TSR_E_LIMIT if one is too long, TSR_E_FORMAT for a string that is not UTF-8. */
void tsr_pickle_put_bool(struct tsr_pickle_writer *w, bool boolean);
enum tsr_status tsr_pickle_put_int(struct tsr_pickle_writer *w, const struct tsr_value *v);
enum tsr_status tsr_pickle_put_u64(struct tsr_pickle_writer *w, uint64_t value);
void tsr_pickle_put_float(struct tsr_pickle_writer *w, uint64_t real);
enum tsr_status tsr_pickle_put_string(struct tsr_pickle_writer *w, const char *bytes,
				      size_t nbytes);

/* The opcode and length of a string, whose bytes follow. */
enum tsr_status tsr_pickle_put_string_head(struct tsr_pickle_writer *w, size_t nbytes);

#endif
