/* SPDX-License-Identifier: Apache-2.0 */
/* One coding tried on a few elements: what comes back, and what its groups are like. */
#include "audit/audit_trial.h"

#include <string.h>

#include "codec/math.h"
#include "codec/measuring.h"

void tsr_trial_sums_merge(struct tsr_trial_sums *into, const struct tsr_trial_sums *from)
{
	tsr_measure_merge(&into->measure, &from->measure);
	into->report.scale_underflow += from->report.scale_underflow;
	into->report.scale_overflow += from->report.scale_overflow;
	into->report.narrow_overflow += from->report.narrow_overflow;
	into->groups += from->groups;
	into->stuck += from->stuck;
	into->range_sum += from->range_sum;
	into->nranges += from->nranges;
	if (from->range_max > into->range_max)
		into->range_max = from->range_max;
	into->measured = into->measured || from->measured;
}

void tsr_trial_code(const struct tsr_coding *coding, const float *x, size_t n,
		    struct tsr_trial_memory *memory, float *decoded,
		    struct tsr_encode_report *report)
{
	coding->codec->encode(coding, x, n, memory->plane, report);
	coding->codec->decode(coding, (const void *const *)memory->plane, n, decoded);
}

/* Elements of the group at @at, which is the start of one; @size: those of a whole one. */
static size_t group_at(const struct tsr_coding *coding, size_t size, size_t at, size_t n)
{
	if (coding->row && coding->row - at % coding->row < size)
		size = coding->row - at % coding->row;
	return n - at < size ? n - at : size;
}

/* --- Stuck groups ------------------------------------------------------------------------------- */

static bool any_nonzero(const float *x, size_t n)
{
	uint32_t all = 0;

	for (size_t i = 0; i < n; i++)
		all |= tsr_bits_from_f32(x[i]) & TSR_F32_MAG;
	return all != 0;
}

/* Whether group number @k, elements @at to @at + @n - 1, has the same planes in both. */
static bool is_same(const struct tsr_coding *coding, const struct tsr_trial_memory *m, size_t k,
		    size_t at, size_t n)
{
	for (unsigned i = 0; i < coding->codec->nplanes; i++) {
		const bool each = coding->codec->planes[i].unit == TSR_PER_ELEMENT;
		const bool packed = coding->codec->planes[i].unit == TSR_BIT_PACKED;
		const size_t size = tsr_dtype_bits(tsr_plane_dtype(coding, i)) / 8;
		const size_t offset = packed ? tsr_plane_nbytes(coding, i, at)
					     : (each ? at : k) * size;
		const size_t nbytes = packed ? tsr_plane_nbytes(coding, i, n)
					     : (each ? n : 1) * size;

		if (memcmp((const char *)m->plane[i] + offset, (const char *)m->again[i] + offset,
			   nbytes) != 0)
			return false;
	}
	return true;
}

void tsr_trial_stuck(const struct tsr_coding *coding, const float *decoded, size_t n, float factor,
		     struct tsr_trial_memory *memory, struct tsr_trial_sums *sums)
{
	const size_t whole = tsr_coding_group(coding);
	struct tsr_encode_report ignored = { 0 };
	size_t k = 0;

	for (size_t i = 0; i < n; i++)
		memory->x[i] = decoded[i] * factor;
	coding->codec->encode(coding, memory->x, n, memory->again, &ignored);
	for (size_t at = 0, size; at < n; at += size, k++) {
		size = group_at(coding, whole, at, n);
		if (!any_nonzero(decoded + at, size))
			continue;
		sums->groups++;
		sums->stuck += is_same(coding, memory, k, at, size);
	}
}

/* --- Range -------------------------------------------------------------------------------------- */

void tsr_trial_range(const struct tsr_coding *coding, const float *x, size_t n,
		     struct tsr_trial_sums *sums)
{
	const size_t whole = tsr_coding_group(coding);

	for (size_t at = 0, size; at < n; at += size) {
		uint32_t least = UINT32_MAX, most = 0;

		size = group_at(coding, whole, at, n);
		for (size_t i = at; i < at + size; i++) {
			/* 0 becomes the largest, so that it is not the least. */
			const uint32_t below = (tsr_bits_from_f32(x[i]) & TSR_F32_MAG) - 1;

			least = below < least ? below : least;
			most = below + 1 > most ? below + 1 : most;
		}
		if (!most)
			continue;
		sums->nranges++;
		sums->range_sum += most - 1 - least;
		if (most - 1 - least > sums->range_max)
			sums->range_max = most - 1 - least;
	}
}
