/* SPDX-License-Identifier: Apache-2.0 */
/* Several files out of one input: the parts that all of them need are made here, so that they are right. */
#include "tree.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "container/packed/packed.h"
#include "fuzz.h"
#include "io/hash.h"
#include "memory_files.h"
#include "mutate.h"
#include "small_zip.h"

void tree_parse(struct tree *t, const uint8_t *data, size_t nbytes)
{
	*t = (struct tree){ 0 };
	if (nbytes < 2)
		return;
	memcpy(t->options, data, 2);
	data += 2;
	nbytes -= 2;
	while (nbytes >= TREE_HEAD && t->n < TREE_FILES_MAX) {
		struct tree_file *f = &t->files[t->n++];
		const size_t npath = data[1],
			     n = data[2] | (size_t)data[3] << 8 | (size_t)data[4] << 16;

		f->kind = data[0] % TREE_KINDS;
		data += TREE_HEAD;
		nbytes -= TREE_HEAD;
		f->path = data;
		f->npath = npath < nbytes ? npath : nbytes;
		f->bytes = data + f->npath;
		f->nbytes = n < nbytes - f->npath ? n : nbytes - f->npath;
		data = f->bytes + f->nbytes;
		nbytes -= f->npath + f->nbytes;
	}
}

/* --- Data ------------------------------------------------------------------------------------- */

/* The bytes of fill() are a multiple of all its patterns: they repeat. */
#define FILL_PERIOD 400u

/* Elements that are fit for all that tensors are: small, positive, and whole numbers where these are few. */
static void fill(uint8_t *at, size_t nbytes, const char *dtype)
{
	const size_t start = nbytes < FILL_PERIOD ? nbytes : FILL_PERIOD;
	static const float floats[] = { 0.01f, 0.5f, 0.002f, 1.0f, 0.03f };
	const bool is_double = strstr(dtype, "64") || strstr(dtype, "Double");
	const bool is_float = strstr(dtype, "F32") || strstr(dtype, "Float");
	const bool is_narrow = strstr(dtype, "16") || strstr(dtype, "Half");

	for (size_t i = 0; i < start; i++) {
		float f = nbytes <= 8 ? 3 : floats[i / 4 % 5];
		double d = (double)f;

		if (is_double && strchr("FD", *dtype) && *dtype)
			at[i] = ((const uint8_t *)&d)[i % 8];
		else if (is_narrow && *dtype != 'I' && *dtype != 'U')
			at[i] = i % 2 ? 0x3c : (uint8_t)(i / 2 % 100);
		else if (is_float)
			at[i] = ((const uint8_t *)&f)[i % 4];
		else
			at[i] = i % 8 ? 0 : (uint8_t)(i / 8 % 2 + 1);
	}
	for (size_t done = start, n; done < nbytes; done += n) {
		n = nbytes - done < done ? nbytes - done : done;
		memcpy(at + done, at, n);
	}
}

/* --- Archives of torch.save ------------------------------------------------------------------- */

#define RECORDS_MAX 256u
#define MEMO_MAX 4096u

struct record {
	char name[24];
	size_t nbytes;
	char dtype[32];
};

struct records {
	struct record record[RECORDS_MAX];
	size_t n;
};

/* What the pickle said last, for the storages that it asks for next. */
struct scan {
	char dtype[32], key[16];
	uint64_t numel;
	size_t memo_at; /* the number of memoizations so far */
	char memo[MEMO_MAX][12]; /* storage types by number */
	bool is_type; /* the last opcode was one */
};

static size_t width_of(const char *dtype)
{
	static const struct {
		const char *start;
		size_t width;
	} widths[] = { { "Float8", 1 },	  { "Float", 4 },    { "Double", 8 }, { "Long", 8 },
		       { "Int", 4 },	  { "Short", 2 },    { "Half", 2 },   { "BFloat", 2 },
		       { "ComplexF", 8 }, { "ComplexD", 16 } };

	for (size_t i = 0; i < sizeof(widths) / sizeof(*widths); i++) {
		if (strncmp(dtype, widths[i].start, strlen(widths[i].start)) == 0)
			return widths[i].width;
	}
	return 1;
}

static void add_record(struct records *r, const struct scan *s)
{
	const uint64_t room = TREE_RECORD_MAX / width_of(s->dtype);
	const size_t nbytes = (size_t)(s->numel < room ? s->numel : room) * width_of(s->dtype);
	char name[24];
	size_t at = 0;

	snprintf(name, sizeof(name), "r/data/%s", s->key);
	while (at < r->n && strcmp(r->record[at].name, name) != 0)
		at++;
	if (at == RECORDS_MAX)
		return;
	if (at == r->n) {
		r->n++;
		r->record[at].nbytes = nbytes;
		strcpy(r->record[at].name, name);
		snprintf(r->record[at].dtype, sizeof(r->record[at].dtype), "%s", s->dtype);
	}
}

static void copy_text(char *to, size_t room, const uint8_t *text, size_t n)
{
	n = n < room ? n : room - 1;
	memcpy(to, text, n);
	to[n] = '\0';
}

static void remember(struct scan *s, size_t id)
{
	s->memo_at++;
	if (id >= MEMO_MAX)
		return;
	s->memo[id][0] = '\0';
	if (s->is_type)
		copy_text(s->memo[id], sizeof(s->memo[id]), (const uint8_t *)s->dtype,
			  strlen(s->dtype));
}

/* The name of a class of storages, which a GLOBAL's second line or the string before STACK_GLOBAL is. */
static void take_type(struct scan *s, const uint8_t *text, size_t n)
{
	if (n < 7 || memcmp(text + n - 7, "Storage", 7) != 0)
		return;
	copy_text(s->dtype, sizeof(s->dtype), text, n);
	s->is_type = true;
}

static void scan_op(struct scan *s, struct records *r, const uint8_t *p, size_t n)
{
	const uint8_t *text, *line = memchr(p, '\n', n);
	const bool was_type = s->is_type;
	uint64_t number = 0;
	size_t ntext;

	pickle_op(p, n, &text, &ntext);
	for (size_t i = n; i-- > 1 && n <= 9;)
		number = number << 8 | p[i];
	s->is_type = false;
	/* A pickle may end behind the first line. */
	if (*p == 'c' && line && line + 1 < p + n) {
		take_type(s, line + 1, n - 1 - (size_t)(line + 1 - p));
	} else if (text && *p != 0x8a) {
		take_type(s, text, ntext);
		if (!s->is_type && (!ntext || (text[0] != 'c' && ntext < sizeof(s->key))))
			copy_text(s->key, sizeof(s->key), text, ntext);
	} else if (*p == 'K' || *p == 'M' || *p == 'J') {
		s->numel = number;
	} else if (*p == 0x8a && ntext <= 7) {
		s->numel = number >> 8;
	} else if ((*p == 'h' || *p == 'j') && number < MEMO_MAX && s->memo[number][0]) {
		strcpy(s->dtype, s->memo[number]);
	} else if (*p == 'q' || *p == 'r' || *p == 0x94) {
		s->is_type = was_type;
		remember(s, *p == 0x94 ? s->memo_at : (size_t)number);
	} else if (*p == 0x93) {
		s->is_type = true;
	} else if (*p == 'Q') {
		add_record(r, s);
	}
}

static void write_torch(const char *path, const uint8_t *pickle, size_t nbytes)
{
	static struct records r;
	static struct scan s;
	struct small_member members[RECORDS_MAX + 2];
	const uint8_t *text;
	size_t ntext, n, total = 0;
	static uint8_t data[TREE_DATA_MAX];
	uint8_t *zip;

	r.n = 0;
	s = (struct scan){ .dtype = "FloatStorage" };
	for (size_t at = 0; at < nbytes; at += n) {
		n = pickle_op(pickle + at, nbytes - at, &text, &ntext);
		scan_op(&s, &r, pickle + at, n);
	}
	members[0] = (struct small_member){ "r/data.pkl", pickle, nbytes };
	for (size_t i = 0; i < r.n; i++) {
		if (r.record[i].nbytes > TREE_DATA_MAX - total)
			r.record[i].nbytes = TREE_DATA_MAX - total;
		fill(data + total, r.record[i].nbytes, r.record[i].dtype);
		members[i + 1] = (struct small_member){ r.record[i].name, data + total,
							r.record[i].nbytes };
		total += r.record[i].nbytes;
	}
	members[r.n + 1] = (struct small_member){ "r/version", "3", 1 };
	zip = small_zip(members, r.n + 2, &n);
	memory_give(path, zip, n);
}

/* --- Safetensors ------------------------------------------------------------------------------ */

/* Make the check of a packed header right. */
static void set_check(char *header, size_t nbytes)
{
	static const char lead[] = "\"" TSR_PACKED_CHECK_KEY "\":\"";
	char *at = strstr(header, lead), digits[17];

	while (at && at > header && at[-1] == '\\')
		at = strstr(at + 1, lead);
	if (!at || strlen(at) < sizeof(lead) - 1 + 16)
		return;
	at += sizeof(lead) - 1;
	memcpy(at, TSR_PACKED_CHECK_ZEROS, 16);
	snprintf(digits, sizeof(digits), "%016" PRIx64, tsr_hash(header, nbytes, 0));
	memcpy(at, digits, 16);
}

/* Fill where the header says there is data, and return where the last of it ends. */
static size_t fill_offsets(const char *header, uint8_t *data)
{
	static const char key[] = "\"data_offsets\":[";
	size_t end = 0;

	for (const char *at = header; (at = strstr(at, key));) {
		const char *dtype = at;
		size_t from, to;

		at += sizeof(key) - 1;
		if (sscanf(at, "%zu,%zu", &from, &to) != 2 || from > to || to > TREE_DATA_MAX)
			continue;
		while (dtype > header && memcmp(dtype, "\"dtype\":\"", 9) != 0 && at - dtype < 200)
			dtype--;
		fill(data + from, to - from,
		     memcmp(dtype, "\"dtype\":\"", 9) == 0 ? dtype + 9 : "");
		end = to > end ? to : end;
	}
	return end;
}

static void write_safetensors(const char *path, const struct tree_file *t)
{
	static uint8_t data[TREE_DATA_MAX];
	uint8_t *file = malloc(8 + t->nbytes + 1);
	char *header = (char *)file + 8;
	size_t ndata;

	REQUIRE(file);
	memcpy(header, t->bytes, t->nbytes);
	header[t->nbytes] = '\0';
	ndata = fill_offsets(header, data);
	if (t->kind == TREE_PACKED)
		set_check(header, t->nbytes);
	file = realloc(file, 8 + t->nbytes + ndata + 1);
	REQUIRE(file);
	memcpy(file + 8 + t->nbytes, data, ndata);
	memset(data, 0, ndata);
	for (unsigned i = 0; i < 8; i++)
		file[i] = (uint8_t)((uint64_t)t->nbytes >> 8 * i);
	memory_give(path, file, 8 + t->nbytes + ndata);
}

void tree_write(const struct tree *t, const char *directory)
{
	char path[600];

	for (size_t i = 0; i < t->n; i++) {
		const struct tree_file *f = &t->files[i];
		const int n = snprintf(path, sizeof(path), "%s/%.*s", directory, (int)f->npath,
				       (const char *)f->path);

		if (n < 0 || (size_t)n != strlen(directory) + 1 + f->npath || strstr(path, ".."))
			continue;
		if (f->kind == TREE_TORCH)
			write_torch(path, f->bytes, f->nbytes);
		else if (f->kind == TREE_SAFETENSORS || f->kind == TREE_PACKED)
			write_safetensors(path, f);
		else
			memory_put(path, f->bytes, f->nbytes);
	}
}
