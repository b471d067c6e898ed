/* SPDX-License-Identifier: Apache-2.0 */
/* Mutations of archives, member by member: what is written has right offsets, sizes and checksums. */
#include <stdlib.h>
#include <string.h>

#include "format/zip_format.h"
#include "fuzz.h"
#include "io/crc.h"
#include "mutate.h"

#define MEMBERS_MAX 64u

struct member {
	uint8_t name[300];
	size_t nname;
	unsigned flags, method;
	uint32_t crc;
	uint64_t size; /* of what is stored once it is inflated */
	uint8_t *data;
	size_t ndata, padding;
};

struct archive {
	struct member members[MEMBERS_MAX];
	size_t n;
};

/* --- Reading ---------------------------------------------------------------------------------- */

/* What a central header says and its local one says alike; false for what this does not know. */
static bool read_member(const struct buffer *b, const uint8_t *c, struct member *m)
{
	const size_t nname = tsr_zip_get16(c + 28), local = tsr_zip_get32(c + 42);
	size_t at;

	*m = (struct member){ .flags = tsr_zip_get16(c + 8), .method = tsr_zip_get16(c + 10) };
	m->crc = tsr_zip_get32(c + 16);
	m->ndata = tsr_zip_get32(c + 20);
	m->size = tsr_zip_get32(c + 24);
	if (nname > sizeof(m->name) || local > b->nbytes ||
	    b->nbytes - local < TSR_ZIP_LOCAL_NBYTES)
		return false;
	at = local + TSR_ZIP_LOCAL_NBYTES + tsr_zip_get16(b->bytes + local + 26) +
	     tsr_zip_get16(b->bytes + local + 28);
	if (at > b->nbytes || m->ndata > b->nbytes - at)
		return false;
	m->nname = nname;
	memcpy(m->name, c + TSR_ZIP_CENTRAL_NBYTES, nname);
	m->padding = at % 64 == 0;
	m->data = malloc(m->ndata + 1);
	REQUIRE(m->data);
	if (m->ndata)
		memcpy(m->data, b->bytes + at, m->ndata);
	return true;
}

static bool read_archive(const struct buffer *b, struct archive *a)
{
	size_t end = b->nbytes, at, n;

	a->n = 0;
	for (end -= TSR_ZIP_END_NBYTES; tsr_zip_get32(b->bytes + end) != TSR_ZIP_END; end--) {
		if (!end)
			return false;
	}
	n = tsr_zip_get16(b->bytes + end + 10);
	at = tsr_zip_get32(b->bytes + end + 16);
	if (n > MEMBERS_MAX)
		return false;
	for (; a->n < n; a->n++) {
		if (at > end || end - at < TSR_ZIP_CENTRAL_NBYTES ||
		    tsr_zip_get32(b->bytes + at) != TSR_ZIP_CENTRAL)
			return false;
		if (end - at < TSR_ZIP_CENTRAL_NBYTES + (size_t)tsr_zip_get16(b->bytes + at + 28) ||
		    !read_member(b, b->bytes + at, &a->members[a->n]))
			return false;
		at += TSR_ZIP_CENTRAL_NBYTES + (size_t)tsr_zip_get16(b->bytes + at + 28) +
		      tsr_zip_get16(b->bytes + at + 30) + tsr_zip_get16(b->bytes + at + 32);
	}
	return true;
}

/* --- Writing ---------------------------------------------------------------------------------- */

struct writer {
	struct buffer *b;
	size_t at;
	bool full;
};

static void put_bytes(struct writer *w, const void *bytes, size_t n)
{
	w->full = w->full || n > w->b->room - w->at;
	if (w->full || !n)
		return;
	memcpy(w->b->bytes + w->at, bytes, n);
	w->at += n;
}

static void put(struct writer *w, uint64_t value, size_t width)
{
	uint8_t bytes[8];

	for (size_t i = 0; i < width; i++)
		bytes[i] = (uint8_t)(value >> 8 * i);
	put_bytes(w, bytes, width);
}

/* From the flags to the length of the name. */
static void put_sizes(struct writer *w, const struct member *m, bool described)
{
	put(w, m->flags, 2);
	put(w, m->method, 2);
	put(w, 0, 4);
	put(w, described ? 0 : m->crc, 4);
	put(w, described ? 0 : m->ndata, 4);
	put(w, described ? 0 : m->size, 4);
	put(w, m->nname, 2);
}

static void put_local(struct writer *w, const struct member *m)
{
	const bool described = m->flags & TSR_ZIP_FLAG_DESCRIPTOR;
	const size_t behind = w->at + TSR_ZIP_LOCAL_NBYTES + m->nname + 4;
	const size_t padding = m->padding ? (64 - behind % 64) % 64 : 0;

	put(w, TSR_ZIP_LOCAL, 4);
	put(w, 0, 2);
	put_sizes(w, m, described);
	put(w, m->padding ? 4 + padding : 0, 2);
	put_bytes(w, m->name, m->nname);
	if (m->padding) {
		put(w, 0x4246, 2);
		put(w, padding, 2);
		for (size_t i = 0; i < padding; i++)
			put(w, 'Z', 1);
	}
	put_bytes(w, m->data, m->ndata);
	if (described) {
		put(w, TSR_ZIP_DESCRIPTOR, 4);
		put(w, m->crc, 4);
		put(w, m->ndata, 4);
		put(w, m->size, 4);
	}
}

static void write_archive(struct buffer *b, const struct archive *a)
{
	struct writer w = { .b = b };
	size_t local[MEMBERS_MAX], directory;

	for (size_t i = 0; i < a->n; i++) {
		local[i] = w.at;
		put_local(&w, &a->members[i]);
	}
	directory = w.at;
	for (size_t i = 0; i < a->n; i++) {
		const struct member *m = &a->members[i];

		put(&w, TSR_ZIP_CENTRAL, 4);
		put(&w, 0, 4);
		put_sizes(&w, m, false);
		for (unsigned j = 0; j < 3; j++)
			put(&w, 0, 4);
		put(&w, local[i], 4);
		put_bytes(&w, m->name, m->nname);
	}
	put(&w, TSR_ZIP_END, 4);
	put(&w, 0, 4);
	put(&w, a->n, 2);
	put(&w, a->n, 2);
	put(&w, w.at - 12 - directory, 4);
	put(&w, directory, 4);
	put(&w, 0, 2);
	if (!w.full)
		b->nbytes = w.at;
}

/* --- Mutating --------------------------------------------------------------------------------- */

static void change_data(struct member *m)
{
	struct buffer b = { .nbytes = m->ndata, .room = m->ndata + 4096 };

	b.bytes = malloc(b.room);
	REQUIRE(b.bytes);
	if (m->ndata)
		memcpy(b.bytes, m->data, m->ndata);
	mutate_file(&b);
	free(m->data);
	m->data = b.bytes;
	m->ndata = b.nbytes;
	if (m->method != TSR_ZIP_STORED)
		return;
	m->size = m->ndata;
	if (m->crc)
		m->crc = tsr_crc32(0, m->data, m->ndata);
}

static void change_name(struct member *m)
{
	size_t at = mutate_pick(m->nname + 1);
	const char *word = mutate_word();

	while (mutate_pick(4) && at && m->name[at - 1] != '/')
		at--;
	if (mutate_pick(2) && at + strlen(word) < sizeof(m->name)) {
		memcpy(m->name + at, word, strlen(word));
		m->nname = at + strlen(word);
	} else {
		m->nname = LLVMFuzzerMutate(m->name, m->nname, sizeof(m->name) - 1);
	}
}

static void copy_member(struct archive *a, size_t from)
{
	struct member *m = &a->members[a->n];

	if (a->n == MEMBERS_MAX)
		return;
	*m = a->members[from];
	m->data = malloc(m->ndata + 1);
	REQUIRE(m->data);
	if (m->ndata)
		memcpy(m->data, a->members[from].data, m->ndata);
	a->n++;
	if (mutate_pick(4))
		change_name(m);
}

static void remove_member(struct archive *a, size_t at)
{
	free(a->members[at].data);
	memmove(&a->members[at], &a->members[at + 1], (--a->n - at) * sizeof(*a->members));
}

static void swap_members(struct archive *a, size_t i, size_t j)
{
	const struct member m = a->members[i];

	a->members[i] = a->members[j];
	a->members[j] = m;
}

static void change_archive(struct archive *a)
{
	const size_t at = mutate_pick(a->n);
	struct member *m = &a->members[at];

	switch (mutate_pick(12)) {
	case 0:
		change_name(m);
		break;
	case 1:
		copy_member(a, at);
		break;
	case 2:
		remove_member(a, at);
		break;
	case 3:
		swap_members(a, at, mutate_pick(a->n));
		break;
	case 4:
		m->flags ^= mutate_pick(2) ? TSR_ZIP_FLAG_DESCRIPTOR : 1u << mutate_pick(16);
		break;
	case 5:
		m->crc = mutate_pick(2) ? 0 : (uint32_t)mutate_number();
		break;
	case 6:
		m->size = (uint32_t)mutate_number();
		break;
	case 7:
		m->method = mutate_pick(2) ? TSR_ZIP_DEFLATED : (unsigned)mutate_pick(16);
		break;
	default:
		change_data(m);
	}
}

/* A member may be an archive, which comes back here. */
void mutate_zip(struct buffer *b)
{
	struct archive *a = malloc(sizeof(*a));

	REQUIRE(a);
	a->n = 0;
	if (b->nbytes < TSR_ZIP_END_NBYTES || mutate_pick(8) == 0 || !read_archive(b, a) || !a->n) {
		mutate_bytes(b, 0, b->nbytes);
	} else {
		change_archive(a);
		write_archive(b, a);
	}
	while (a->n)
		free(a->members[--a->n].data);
	free(a);
}
