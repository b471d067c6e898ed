/* SPDX-License-Identifier: Apache-2.0 */
/* The members of a zip archive that is to be written, each with bytes that are known beforehand. */
#include "format/zip_members.h"

#include "io/crc.h"
#include "base/fail.h"
#include "base/utf8.h"

/* What PyTorch aligns records to. */
#define ALIGN 64u

enum tsr_status tsr_zip_members_init(struct tsr_zip_members *m, size_t room, const char *path,
				     struct tsr_err *err)
{
	*m = (struct tsr_zip_members){ .path = path,
				       .room = room,
				       .arena = tsr_arena_new(SIZE_MAX) };
	TSR_TRY(TSR_TAKE(&m->entries, room + 1, m->arena, err, path));
	return TSR_TAKE(&m->heads, room + 1, m->arena, err, path);
}

void tsr_zip_members_free(struct tsr_zip_members *m)
{
	for (size_t i = 0; i < m->n; i++)
		tsr_text_free(&m->heads[i]);
	tsr_arena_free(m->arena);
	*m = (struct tsr_zip_members){ .n = 0 };
}

/* --- Names ---------------------------------------------------------------------------------- */

static bool is_dots(const char *component, size_t n)
{
	return (n == 1 && component[0] == '.') ||
	       (n == 2 && component[0] == '.' && component[1] == '.');
}

const char *tsr_zip_name_flaw(const char *name, size_t n)
{
	size_t start = 0; /* of the component */

	if (n && memchr(name, '\0', n))
		return "a NUL character";
	if (n && memchr(name, '\\', n))
		return "a backslash";
	if (tsr_utf8_prefix(name, n) < n)
		return "bytes that are not UTF-8";
	for (size_t at = 0; at <= n; at++) {
		if (at < n && name[at] != '/')
			continue;
		if (at == start)
			return "an empty component";
		if (is_dots(name + start, at - start))
			return "a component \".\" or \"..\"";
		start = at + 1;
	}
	return NULL;
}

/* Whether readers take the name, ours among them. */
static enum tsr_status check_name(const char *path, const char *name, const char *member,
				  struct tsr_err *err)
{
	const char *flaw = *name ? tsr_zip_name_flaw(member, strlen(member)) : "nothing";

	if (strlen(member) > TSR_ZIP_NAME_MAX)
		return tsr_fail(err, TSR_E_LIMIT,
				"%s: tensor %.40s...: its name is over the limit of a zip archive",
				path, name);
	if (!flaw)
		return TSR_OK;
	return tsr_fail(
		err, TSR_E_UNSUPPORTED,
		"%s: tensor \"%.200s\": found %s in its name, expected a plain relative path, "
		"which the members of a zip archive have",
		path, name, flaw);
}

/* --- Members -------------------------------------------------------------------------------- */

enum tsr_status tsr_zip_members_add(struct tsr_zip_members *m, const char *prefix, const char *name,
				    const char *suffix, struct tsr_text *head, uint64_t data_nbytes,
				    struct tsr_err *err)
{
	struct tsr_zip_entry *e = &m->entries[m->n];
	const char *full = tsr_arena_printf(m->arena, "%s%s%s", prefix, name, suffix);

	if (!full || (head && head->failed))
		return tsr_fail_nomem(err, m->path);
	TSR_TRY(check_name(m->path, name, full, err));
	*e = (struct tsr_zip_entry){ .name = full, .nbytes = data_nbytes, .align = ALIGN };
	if (head) {
		e->crc = tsr_crc32(0, head->bytes, head->nbytes);
		e->nbytes += head->nbytes;
		m->heads[m->n] = *head;
		*head = (struct tsr_text){ 0 };
	}
	m->n++;
	return TSR_OK;
}

uint64_t tsr_zip_members_data(const struct tsr_zip_members *m, size_t member)
{
	return m->base + m->entries[member].offset + m->heads[member].nbytes;
}

void tsr_zip_members_sum(struct tsr_zip_members *m, size_t member, uint32_t crc, uint64_t nbytes)
{
	m->entries[member].crc = tsr_crc32_combine(m->entries[member].crc, crc, nbytes);
}

enum tsr_status tsr_zip_members_write(const struct tsr_zip_members *m, struct tsr_outfile *f,
				      struct tsr_err *err)
{
	for (size_t i = 0; i < m->n; i++) {
		const struct tsr_text *head = &m->heads[i];

		if (head->nbytes)
			TSR_TRY(tsr_outfile_write(f, head->bytes, head->nbytes,
						  m->base + m->entries[i].offset, err));
	}
	return tsr_zip_write_headers(f, m->base, m->entries, m->n, err);
}
