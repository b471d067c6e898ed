/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a store holds: an input that begins with '{' is the text of a snapshot, which gets its check; any other
 * one is an object, which all SIMD levels refuse, or decode to the same elements.
 */
#include <stdio.h>

#include "base/isa.h"
#include "fuzz.h"
#include "memory_files.h"
#include "store/block_code.h"
#include "store/store_data.h"

/* Larger blocks take the same paths, more slowly. */
#define MOST 70000u

static uint8_t first[TSR_SLOTS][MOST * TSR_ENTROPY_WIDTH],
	other[TSR_SLOTS][MOST * TSR_ENTROPY_WIDTH];
static float base[MOST];

/* --- Objects ----------------------------------------------------------------------------------- */

/* Whether a snapshot that was accepted could ask for such a block. */
static bool is_possible(const struct tsr_block_of *of)
{
	return of->at.n && of->at.n <= MOST && of->at.columns <= 0xffffff &&
	       (!of->at.phase || of->at.phase < of->at.columns) && of->slots >= 1 &&
	       of->slots <= TSR_SLOTS && of->dtype < TSR_DTYPE_COUNT &&
	       tsr_entropy_kind(of->dtype).width &&
	       (of->slots == 1 ||
		(of->kind[0] == TSR_KIND_MOMENTUM && of->kind[1] == TSR_KIND_VARIANCE)) &&
	       (of->kind[0] & (of->kind[0] - 1u)) == 0 && of->kind[0] <= TSR_KIND_VARIANCE;
}

static void check_object(const uint8_t *data, size_t size)
{
	struct tsr_block_coder *c = tsr_block_coder_new();
	struct tsr_object_head head;
	bool accepted = false;

	if (!c || tsr_object_head(data, size, &head) || !is_possible(&head.of)) {
		tsr_block_coder_free(c);
		return;
	}
	for (size_t i = 0; i < MOST; i++)
		base[i] = (float)(i % 97) * 0x1p-9f - 0.05f;
	for (const char *const *isa = tsr_isa_names(); *isa; isa++) {
		uint8_t(*const to)[MOST * TSR_ENTROPY_WIDTH] = isa == tsr_isa_names() ? first
										      : other;
		void *const y[TSR_SLOTS] = { to[0], to[1] };
		bool works;

		if (!tsr_isa_select(*isa))
			continue;
		works = !tsr_block_decode(c, &head.of, data, size, base, y);
		REQUIRE(isa == tsr_isa_names() || works == accepted);
		accepted = works;
		for (unsigned i = 0; works && to == other && i < head.of.slots; i++)
			REQUIRE(memcmp(first[i], other[i],
				       head.of.at.n * (size_t)tsr_dtype_bits(head.of.dtype) / 8) ==
				0);
	}
	REQUIRE(tsr_isa_select(NULL));
	tsr_block_coder_free(c);
}

/* --- Snapshots --------------------------------------------------------------------------------- */

#define NAME "000000000000000.json"

/* Nothing in a snapshot that was accepted leads out of the checkpoint or of a file. */
static void check_snapshot(const struct tsr_snapshot *s)
{
	for (size_t i = 0; i < s->npaths; i++) {
		const struct tsr_stored_path *p = &s->paths[i];
		uint64_t end = 0;

		REQUIRE(*p->path && *p->path != '/' && !strstr(p->path, "../"));
		for (size_t k = 0; k < p->nranges; k++) {
			REQUIRE(p->ranges[k].offset >= end);
			end = p->ranges[k].offset + p->ranges[k].nbytes;
		}
		REQUIRE(end <= p->nbytes && p->rest_nbytes <= p->nbytes);
		for (size_t k = 0; k < p->ncrcs; k++)
			REQUIRE(p->crcs[k].at + 4 <= p->nbytes &&
				p->crcs[k].offset + p->crcs[k].nbytes <= p->nbytes);
	}
	for (size_t i = 0; i < s->ntensors; i++) {
		const struct tsr_block_of of = tsr_stored_block(&s->tensors[i], 0);

		REQUIRE(of.at.n && (!of.at.phase || of.at.phase < of.at.columns));
	}
}

static void read_text(const uint8_t *data, size_t size)
{
	struct tsr_store store = { .path = (char *)MEMORY "/store", .lock = -1 };
	struct tsr_object_id check = tsr_object_name(data, size);
	char *text = malloc(size + 64);
	struct tsr_snapshot snapshot;
	struct tsr_err err = { 0 };
	enum tsr_status status;

	REQUIRE(text);
	memcpy(text, data, size);
	size += (size_t)snprintf(text + size, 64, ",\"check\":\"%s\"}\n",
				 tsr_object_text(&check).text);
	store.arena = tsr_arena_new((size_t)256 << 20);
	REQUIRE(store.arena && memory_give(MEMORY "/store/" TSR_SNAPSHOTS "/" NAME, text, size));
	status = tsr_snapshot_read(&store, NAME, &snapshot, &err);
	if (status == TSR_OK)
		check_snapshot(&snapshot);
	else if (status != TSR_E_NOMEM)
		check_refusal(status, &err);
	tsr_arena_free(store.arena);
	memory_clear();
}

/* Edges count the elements, of which an object of a few bytes may have many. */
const struct cost_bounds fuzz_cost = { 80000000, 1000, 64 << 20, 4000 };

void fuzz_input(const uint8_t *data, size_t nbytes)
{
	if (nbytes && *data == '{')
		read_text(data, nbytes);
	else
		check_object(data, nbytes);
}
