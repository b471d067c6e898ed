/* SPDX-License-Identifier: Apache-2.0 */
/* Products of the factors of a low-rank codec: what it approximates a matrix by. */
#include "base/fail.h"
#include "ckpt/read.h"
#include "codec/loops.h"

/* Rows of left that are multiplied with the same columns. */
#define ROWS 64u

#define COLUMNS TSR_PRODUCT_COLUMNS

struct factors {
	const struct tsr_checkpoint *c;
	const struct tsr_tensor *t;
	const struct tsr_coding *coding;
	struct tsr_err *err;
	unsigned stage;
};

/* Codes and scales of rows @first to @first + @n - 1 of the two factors: right's are behind left's. */
static enum tsr_status get_rows(const struct factors *f, uint64_t first, size_t n, void *codes,
				void *scales)
{
	const uint64_t nrows = f->t->shape[0] + f->t->shape[1];
	const uint64_t part = f->t->shape[0] * f->coding->share / tsr_factor_stages(f->coding);
	const uint64_t at[2] = { f->stage * part + first * TSR_RANK,
				 f->stage * part + nrows * TSR_RANK + first * sizeof(uint16_t) };
	const size_t nbytes[2] = { n * TSR_RANK, n * sizeof(uint16_t) };
	void *const to[2] = { codes, scales };

	for (unsigned i = 0; i < 2; i++) {
		if (f->coding->factors)
			memcpy(to[i], f->coding->factors + at[i], nbytes[i]);
		else
			TSR_TRY(tsr_array_read(f->c, &f->c->arrays[f->t->plane[2]], at[i],
					       nbytes[i], to[i], f->err));
	}
	return TSR_OK;
}

static enum tsr_status read_rows(const struct factors *f, uint64_t first, size_t n, float *rows)
{
	const struct tsr_coding coding = tsr_factors_coding();
	unsigned char codes[COLUMNS * TSR_RANK];
	uint16_t scales[COLUMNS];

	TSR_TRY(get_rows(f, first, n, codes, scales));
	coding.codec->decode(&coding, (const void *const[]){ codes, scales }, n * TSR_RANK, rows);
	return TSR_OK;
}

/* The same of right, columns one after the other. */
static enum tsr_status read_right(const struct factors *f, uint64_t first, size_t n, float *right)
{
	float rows[COLUMNS * TSR_RANK];

	TSR_TRY(read_rows(f, f->t->shape[0] + first, n, rows));
	for (size_t i = 0; i < n; i++) {
		for (unsigned k = 0; k < TSR_RANK; k++)
			right[k * COLUMNS + i] = rows[i * TSR_RANK + k];
	}
	return TSR_OK;
}

/* Add the products of a stage to @x. */
static enum tsr_status add_products(const struct factors *f, uint64_t first, size_t n, float *x)
{
	static tsr_products_fn *const products[] = TSR_ISA_VARIANTS(products);
	const uint64_t columns = f->t->shape[1], end = first + n;
	float left[ROWS * TSR_RANK], right[TSR_RANK * COLUMNS];

	for (uint64_t row = first / columns, past; row * columns < end; row = past) {
		past = (end + columns - 1) / columns;
		past = past - row < ROWS ? past : row + ROWS;
		TSR_TRY(read_rows(f, row, past - row, left));
		for (uint64_t at = 0; at < columns; at += COLUMNS) {
			const uint64_t size = columns - at < COLUMNS ? columns - at : COLUMNS;

			TSR_TRY(read_right(f, at, size, right));
			for (uint64_t i = row; i < past; i++) {
				const uint64_t begin = i * columns + at;
				const uint64_t from = begin < first ? first : begin;
				const uint64_t to = begin + size < end ? begin + size : end;

				if (from < to)
					products[tsr_isa_level()](left + (i - row) * TSR_RANK,
								  right + (from - begin), to - from,
								  x + (from - first));
			}
		}
	}
	return TSR_OK;
}

enum tsr_status tsr_tensor_products(const struct tsr_checkpoint *c, const struct tsr_tensor *t,
				    const struct tsr_coding *coding, uint64_t first, size_t n,
				    float *x, struct tsr_err *err)
{
	struct factors f = { c, t, coding, err, 0 };

	memset(x, 0, n * sizeof(*x));
	for (; f.stage < tsr_factor_stages(coding); f.stage++)
		TSR_TRY(add_products(&f, first, n, x));
	return TSR_OK;
}

enum tsr_status tsr_tensor_factors(const struct tsr_checkpoint *c, const struct tsr_tensor *t,
				   const struct tsr_coding *coding, uint64_t first, size_t n,
				   unsigned char *ret, struct tsr_err *err)
{
	const size_t columns = (size_t)t->shape[1], nleft = (n + columns - 1) / columns;
	const size_t nrows = nleft + columns, nstages = tsr_factor_stages(coding);
	struct factors f = { c, t, coding, err, 0 };

	for (; f.stage < nstages; f.stage++) {
		unsigned char *codes = ret + f.stage * nrows * TSR_RANK;
		unsigned char *scales = ret + nstages * nrows * TSR_RANK +
					f.stage * nrows * sizeof(uint16_t);

		TSR_TRY(get_rows(&f, first / columns, nleft, codes, scales));
		TSR_TRY(get_rows(&f, t->shape[0], columns, codes + nleft * TSR_RANK,
				 scales + nleft * sizeof(uint16_t)));
	}
	return TSR_OK;
}
