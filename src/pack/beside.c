/* SPDX-License-Identifier: Apache-2.0 */
/* The variances, or products of factors, that go with a tile of momenta. */
#include "pack/beside.h"

#include <string.h>

#include "base/fail.h"
#include "codec/narrow.h"

/* Elements that are encoded at a time: whole groups, of which the scratch memory has room for one. */
#define AT_ONCE (2 * TSR_READ_MAX)

/* Whether the variance comes back as it is read. */
static bool is_exact(const struct tsr_tensor *stored, const struct tsr_tensor *wanted)
{
	if (!wanted || !wanted->coding.codec || wanted->coding.codec->lossless)
		return true;
	return stored->coding.codec && tsr_coding_is_same(&stored->coding, &wanted->coding);
}

/* Encode and decode the groups from @begin on; returns where they end. */
static enum tsr_status there_and_back(struct tsr_beside *b, const struct tsr_checkpoint *c,
				      const struct tsr_tensor *stored,
				      const struct tsr_tensor *wanted, uint64_t begin,
				      uint64_t *end_ret, struct tsr_err *err)
{
	struct tsr_coding coding = wanted->coding;
	const uint64_t left = stored->numel - begin;
	const size_t most = AT_ONCE - AT_ONCE % tsr_coding_align(&coding);
	const size_t n = left < most ? (size_t)left : most;
	struct tsr_encode_report report = { 0 };
	void *plane[TSR_PLANES_MAX];

	TSR_TRY(tsr_tensor_read_f32(c, stored, begin, n, &b->read, b->x, err));
	for (unsigned i = 0; i < TSR_PLANES_MAX; i++)
		plane[i] = b->read.plane[i];
	coding.first = begin;
	coding.codec->encode(&coding, b->x, n, plane, &report);
	coding.codec->decode(&coding, (const void *const *)plane, n, b->read.decoded);
	tsr_round_to(wanted->dtype, b->read.decoded, n);
	*end_ret = begin + n;
	return TSR_OK;
}

enum tsr_status tsr_beside_read(struct tsr_beside *b, const struct tsr_checkpoint *c,
				const struct tsr_tensor *stored, const struct tsr_tensor *wanted,
				uint64_t first, size_t n, struct tsr_err *err)
{
	const struct tsr_tensor *last = wanted ? wanted : stored;
	const uint64_t end = first + n;
	uint64_t done;

	if (last->coding.codec && last->coding.codec->rank) {
		TSR_TRY(tsr_tensor_products(c, last, &last->coding, first, n, b->was, err));
		memcpy(b->will, b->was, n * sizeof(*b->was));
		return TSR_OK;
	}
	if (is_exact(stored, wanted)) {
		TSR_TRY(tsr_tensor_read_f32(c, stored, first, n, &b->read, b->was, err));
		memcpy(b->will, b->was, n * sizeof(*b->was));
		return TSR_OK;
	}
	for (uint64_t at = first; at < end; at = done) {
		const uint64_t begin = at - at % tsr_coding_align(&wanted->coding);
		size_t count;

		TSR_TRY(there_and_back(b, c, stored, wanted, begin, &done, err));
		count = (size_t)((done < end ? done : end) - at);
		memcpy(b->was + (at - first), b->x + (at - begin), count * sizeof(*b->was));
		memcpy(b->will + (at - first), b->read.decoded + (at - begin),
		       count * sizeof(*b->will));
	}
	return TSR_OK;
}
