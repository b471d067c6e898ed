/* SPDX-License-Identifier: Apache-2.0 */
/* What all files of a replay ask of its parameters. */
#include "replay/replaying.h"

#include <stdio.h>

#include "base/fail.h"
#include "io/mapped.h"
#include "text/named.h"

size_t tsr_replay_param_of(const struct tsr_replaying *r, const char *recorded)
{
	const struct tsr_named *found = tsr_named_find(r->by_recorded, r->nparams, recorded);

	return found ? found->index : SIZE_MAX;
}

bool tsr_replay_is_listed(const struct tsr_recording *recording)
{
	return recording->ngroups != 1 || recording->groups[0].params;
}

bool tsr_replay_looks(const struct tsr_replay_options *o)
{
	return o->each_step || o->signatures;
}

bool tsr_replay_is_adam(const struct tsr_replaying *r)
{
	return r->result->optimizer == TSR_OPTIMIZER_ADAM ||
	       r->result->optimizer == TSR_OPTIMIZER_ADAMW ||
	       r->result->optimizer == TSR_OPTIMIZER_GEFEN;
}

bool tsr_replay_is_f32(const struct tsr_coding *coding)
{
	return !coding->codec->grouped && coding->codec->planes[0].dtype == TSR_F32;
}

enum tsr_status tsr_replay_check_plain(const struct tsr_replaying *r, const char *why,
				       struct tsr_err *err)
{
	for (size_t i = 0; i < r->nparams; i++) {
		for (unsigned slot = 0; slot < TSR_SLOTS; slot++) {
			const struct tsr_coding *coding = &r->params[i].coding[slot];

			if (coding->codec && !tsr_replay_is_f32(coding))
				return tsr_fail(
					err, TSR_E_USAGE,
					"%s: tensor %.200s: found a state in %s, expected FP32 %s",
					r->c->path, r->params[i].name, coding->codec->name, why);
		}
	}
	return TSR_OK;
}

bool tsr_replay_is_begun(const struct tsr_replay_param *p)
{
	for (unsigned slot = TSR_SLOT_MOMENTUM; slot < TSR_SLOTS; slot++) {
		if ((p->slots >> slot & 1) && p->tensor[slot] != SIZE_MAX)
			return true;
	}
	return false;
}

/* --- Tiles ------------------------------------------------------------------------------------ */

uint64_t tsr_replay_tile_size(const struct tsr_replay_param *p, uint64_t most)
{
	const uint64_t align = p->align;
	const uint64_t tile = align < TSR_REPLAY_TILE ? TSR_REPLAY_TILE / align * align : align;

	return tile < most ? most / tile * tile : tile;
}

enum tsr_status tsr_replay_cut(const struct tsr_replaying *r, uint64_t most,
			       struct tsr_tiles *tiles, size_t *longest_ret)
{
	TSR_TRY(tsr_tiles_init(tiles, r->nparams, r->c->path, r->err));
	*longest_ret = 0;
	for (size_t i = 0; i < r->nparams; i++) {
		const struct tsr_replay_param *p = &r->params[i];
		const uint64_t n = tsr_replay_tile_size(p, most);
		const uint64_t longest = n < p->numel ? n : p->numel;

		*longest_ret = longest > *longest_ret ? (size_t)longest : *longest_ret;
		tsr_tiles_add(tiles, p->numel, n);
	}
	*longest_ret = (*longest_ret + 15) / 16 * 16;
	return TSR_OK;
}

struct tsr_coding tsr_replay_coding_at(const struct tsr_coding *coding, uint64_t step)
{
	struct tsr_coding at = *coding;

	at.seed += step * UINT64_C(0x9e3779b97f4a7c15);
	return at;
}

void tsr_replay_planes_at(const struct tsr_coding *coding, unsigned char *const *plane,
			  uint64_t first, void **ret)
{
	for (unsigned i = 0; i < coding->codec->nplanes; i++)
		ret[i] = plane[i] + tsr_plane_nbytes(coding, i, first);
}

bool tsr_replay_has_array(const struct tsr_replaying *r, const struct tsr_replay_param *p,
			  unsigned i)
{
	const unsigned slot = i < TSR_REPLAY_FP32 ? i / TSR_PLANES_MAX : i - TSR_REPLAY_FP32;
	const struct tsr_codec *codec = slot < TSR_SLOTS ? p->coding[slot].codec : NULL;

	if (tsr_replay_basis_nbytes(p, i))
		return true;
	return codec &&
	       (i < TSR_REPLAY_FP32 ? i % TSR_PLANES_MAX < codec->nplanes : r->options->compare);
}

uint64_t tsr_replay_array_nbytes(const struct tsr_replay_param *p, unsigned i, uint64_t n)
{
	/* A matrix with bases is one tile. */
	if (tsr_replay_basis_nbytes(p, i))
		return n ? tsr_replay_basis_nbytes(p, i) : 0;
	return i < TSR_REPLAY_FP32
		       ? tsr_plane_nbytes(&p->coding[i / TSR_PLANES_MAX], i % TSR_PLANES_MAX, n)
		       : n * sizeof(float);
}

void tsr_replay_fp32_at(unsigned char *const array[], uint64_t first, float *ret[TSR_SLOTS])
{
	for (unsigned slot = 0; slot < TSR_SLOTS; slot++) {
		float *x = (void *)array[TSR_REPLAY_FP32 + slot];

		ret[slot] = x ? x + first : NULL;
	}
}

void tsr_replay_leave_tile(const struct tsr_replaying *r, const struct tsr_tile *tile)
{
	const struct tsr_replay_param *p = &r->params[tile->tensor];

	for (unsigned i = 0; i < TSR_REPLAY_ARRAYS && r->result->disk; i++) {
		if (tsr_replay_has_array(r, p, i))
			tsr_mapped_leave(r->result->disk,
					 p->array[i] + tsr_replay_array_nbytes(p, i, tile->first),
					 (size_t)tsr_replay_array_nbytes(p, i, tile->n));
	}
}

/* --- Messages --------------------------------------------------------------------------------- */

void tsr_replay_put_count(char *text, size_t room, uint64_t n, const char *what)
{
	const size_t at = strlen(text);

	if (n)
		snprintf(text + at, room - at, "%s%" PRIu64 " %s", at ? ", " : "", n, what);
}

size_t tsr_replay_matrix_work(const struct tsr_replaying *r)
{
	size_t most = 0;

	for (size_t i = 0; i < r->nparams; i++) {
		const struct tsr_replay_param *p = &r->params[i];
		const struct tsr_step step = { .optimizer = r->result->optimizer,
					       .rows = p->rows,
					       .columns = p->columns,
					       .side = { p->side[0], p->side[1] } };
		const size_t n = tsr_step_work(&step);

		most = n > most ? n : most;
	}
	return (most + 15) / 16 * 16;
}
