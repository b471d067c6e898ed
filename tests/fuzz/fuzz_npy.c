/* SPDX-License-Identifier: Apache-2.0 */
/* The header of an .npy file: the input is such a file, or the start of one. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/npy.h"
#include "fuzz.h"

/* What is written for the same array must mean the same. */
static void check_round_trip(const struct tsr_npy_header *h)
{
	struct tsr_text t = { 0 };
	struct tsr_npy_header again;
	struct tsr_err err;

	REQUIRE(tsr_npy_compose(h->dtype, h->rank, h->shape, "again", &t, &err) == TSR_OK);
	REQUIRE(t.nbytes % 64 == 0);
	/* It says its type, or the one that it is given if there is no name for it. */
	REQUIRE(tsr_npy_parse(t.bytes, t.nbytes, t.nbytes + h->nbytes, h->dtype, "again", &again,
			      &err) == TSR_OK);
	REQUIRE(again.dtype == h->dtype && !again.swapped && !again.fortran_order);
	REQUIRE(again.rank == h->rank && again.numel == h->numel && again.nbytes == h->nbytes);
	for (unsigned d = 0; d < h->rank; d++)
		REQUIRE(again.shape[d] == h->shape[d]);
	tsr_text_free(&t);
}

static void check_header(const struct tsr_npy_header *h, uint64_t file_nbytes)
{
	const unsigned bits = tsr_dtype_bits(h->dtype);
	uint64_t numel = 1;

	REQUIRE(h->dtype < TSR_DTYPE_COUNT && bits % 8 == 0 && !(h->swapped && bits == 8));
	REQUIRE(h->rank <= TSR_RANK_MAX);
	for (unsigned d = 0; d < h->rank; d++) {
		REQUIRE(h->shape[d] <= TSR_NPY_DIM_MAX);
		REQUIRE(!__builtin_mul_overflow(numel, h->shape[d], &numel));
	}
	REQUIRE(h->numel == numel && h->nbytes / (bits / 8) == numel);
	REQUIRE(h->data_offset <= TSR_NPY_HEADER_MAX);
	REQUIRE(h->data_offset <= file_nbytes && h->nbytes == file_nbytes - h->data_offset);
	check_round_trip(h);
}

static void check_failure(enum tsr_status status, const struct tsr_err *err,
			  const struct tsr_npy_header *h)
{
	const unsigned char *bytes = (const unsigned char *)h;

	REQUIRE(err->code == status && strncmp(err->msg, "input: ", 7) == 0);
	for (const char *c = err->msg; *c; c++)
		REQUIRE((unsigned char)*c >= ' ' && *c != 0x7f);
	for (size_t i = 0; i < sizeof(*h); i++)
		REQUIRE(bytes[i] == 0x55);
}

/* The size of a file that would be right for its header, from the refusal of this one. */
static bool right_size(const struct tsr_err *err, uint64_t file_nbytes, uint64_t *ret)
{
	const char *found = strstr(err->msg, "found ");
	uint64_t have, want;

	if (!found ||
	    sscanf(found, "found %" SCNu64 " bytes behind the npy header, expected %" SCNu64, &have,
		   &want) != 2)
		return false;
	return !__builtin_add_overflow(file_nbytes - have, want, ret);
}

/* Mutations seldom fit shape and data together: so the size that a refusal names is tried too. */
static void parse(const uint8_t *data, size_t size, enum tsr_dtype as)
{
	uint64_t file_nbytes = size;
	struct tsr_npy_header h;
	struct tsr_err err;
	enum tsr_status status;

	memset(&h, 0x55, sizeof(h));
	status = tsr_npy_parse(data, size, file_nbytes, as, "input", &h, &err);
	if (status != TSR_OK) {
		check_failure(status, &err, &h);
		if (!right_size(&err, size, &file_nbytes))
			return;
		REQUIRE(tsr_npy_parse(data, size, file_nbytes, as, "input", &h, &err) == TSR_OK);
	}
	check_header(&h, file_nbytes);
}

const struct cost_bounds fuzz_cost = { 1000000, 100, 1 << 20, 300 };

void fuzz_input(const uint8_t *data, size_t size)
{
	static const enum tsr_dtype as[] = { TSR_DTYPE_COUNT, TSR_BF16, TSR_F8_E4M3 };

	for (size_t i = 0; i < sizeof(as) / sizeof(*as); i++)
		parse(data, size, as[i]);
}
