/* SPDX-License-Identifier: Apache-2.0 */
/* Mutations of several files: of one of them by what it is, of names, and of which there are. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "mutate.h"
#include "tree.h"

static void put_file(struct buffer *out, const struct tree_file *f)
{
	const uint8_t head[TREE_HEAD] = { (uint8_t)f->kind, (uint8_t)f->npath, (uint8_t)f->nbytes,
					  (uint8_t)(f->nbytes >> 8), (uint8_t)(f->nbytes >> 16) };
	const size_t start = out->nbytes;

	if (f->npath > 255 || f->nbytes >> 24)
		return;
	if (!mutate_splice(out, out->nbytes, 0, head, sizeof(head)) ||
	    !mutate_splice(out, out->nbytes, 0, f->path, f->npath) ||
	    !mutate_splice(out, out->nbytes, 0, f->bytes, f->nbytes))
		out->nbytes = start;
}

static size_t put_tree(const struct tree *t, uint8_t *data, size_t room)
{
	struct buffer out = { .room = room, .bytes = malloc(room + 1) };

	REQUIRE(out.bytes);
	mutate_splice(&out, 0, 0, t->options, sizeof(t->options));
	for (size_t i = 0; i < t->n; i++)
		put_file(&out, &t->files[i]);
	memcpy(data, out.bytes, out.nbytes);
	free(out.bytes);
	return out.nbytes;
}

/* --- One file --------------------------------------------------------------------------------- */

/* A scratch buffer with a copy of what is there, valid until the next one. */
static struct buffer *scratch(const uint8_t *bytes, size_t nbytes)
{
	static struct buffer b;

	if (b.room < nbytes + 4096) {
		b.room = 2 * nbytes + 4096;
		b.bytes = realloc(b.bytes, b.room);
		REQUIRE(b.bytes);
	}
	if (nbytes)
		memcpy(b.bytes, bytes, nbytes);
	b.nbytes = nbytes;
	return &b;
}

static void change_bytes(struct tree_file *f)
{
	struct buffer *b = scratch(f->bytes, f->nbytes);

	for (size_t times = 1 + mutate_pick(3); times--;) {
		if (f->kind == TREE_TORCH)
			mutate_pickle(b);
		else if (f->kind == TREE_SAFETENSORS || f->kind == TREE_PACKED)
			mutate_text(b);
		else
			mutate_file(b);
	}
	f->bytes = b->bytes;
	f->nbytes = b->nbytes;
}

/* Another component of the path, or another number in it. */
static void change_path(struct tree_file *f)
{
	struct buffer *b = scratch(f->path, f->npath);
	size_t at = mutate_pick(f->npath);
	const char *word = mutate_word();
	char number[24];

	if (mutate_pick(3) == 0) {
		mutate_bytes(b, 0, b->nbytes);
	} else if (mutate_pick(2)) {
		size_t end = at;

		while (at && b->bytes[at - 1] != '/')
			at--;
		while (end < b->nbytes && b->bytes[end] != '/')
			end++;
		mutate_splice(b, at, end - at, word, strlen(word));
	} else {
		while (at < b->nbytes && !isdigit(b->bytes[at]))
			at++;
		snprintf(number, sizeof(number), "%zu", mutate_pick(12));
		mutate_splice(b, at, at < b->nbytes, number, strlen(number));
	}
	f->path = b->bytes;
	f->npath = b->nbytes < 255 ? b->nbytes : 255;
}

/* --- All of them ------------------------------------------------------------------------------ */

static void change(struct tree *t)
{
	const size_t at = mutate_pick(t->n), other = mutate_pick(t->n);
	const struct tree_file old = t->files[at];

	switch (mutate_pick(16)) {
	case 0:
		t->options[mutate_pick(2)] ^= (uint8_t)(1u << mutate_pick(8));
		break;
	case 1:
		change_path(&t->files[at]);
		break;
	case 2:
		memmove(&t->files[at], &t->files[at + 1], (--t->n - at) * sizeof(*t->files));
		break;
	case 3:
		if (t->n == TREE_FILES_MAX)
			break;
		t->files[t->n] = old;
		change_path(&t->files[t->n++]);
		break;
	case 4:
		t->files[at].bytes = t->files[other].bytes;
		t->files[at].nbytes = t->files[other].nbytes;
		t->files[at].kind = t->files[other].kind;
		break;
	case 5:
		t->files[at].kind = (unsigned)mutate_pick(TREE_KINDS);
		break;
	default:
		change_bytes(&t->files[at]);
	}
}

size_t tree_mutate(uint8_t *data, size_t nbytes, size_t room, unsigned seed)
{
	static struct tree t;

	mutate_seed(seed);
	tree_parse(&t, data, nbytes);
	if (!t.n || mutate_pick(50) == 0)
		return LLVMFuzzerMutate(data, nbytes, room);
	change(&t);
	return put_tree(&t, data, room);
}

size_t tree_cross(const uint8_t *a, size_t na, const uint8_t *b, size_t nb, uint8_t *out, size_t room, unsigned seed)
{
	static struct tree t, u;

	mutate_seed(seed);
	tree_parse(&t, a, na);
	tree_parse(&u, b, nb);
	for (size_t i = 0; i < u.n; i++) {
		const size_t at = mutate_pick(t.n);

		if (mutate_pick(2) && t.n < TREE_FILES_MAX)
			t.files[t.n++] = u.files[i];
		else if (t.n && mutate_pick(2))
			t.files[at].bytes = u.files[i].bytes, t.files[at].nbytes = u.files[i].nbytes,
			t.files[at].kind = u.files[i].kind;
	}
	return put_tree(&t, out, room);
}
