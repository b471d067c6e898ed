/* SPDX-License-Identifier: Apache-2.0 */
/* NumPy's containers: one array (.npy) and zip archives of them (.npz). */
#include "io/crc.h"
#include "base/fail.h"
#include "container/containers.h"
#include "container/writer_layout.h"
#include "format/npy.h"
#include "format/zip.h"
#include "io/temporary.h"

bool tsr_npy_detect(const struct tsr_file_head *head)
{
	return head->n >= 6 && memcmp(head->bytes, "\x93NUMPY", 6) == 0;
}

bool tsr_npz_detect(const struct tsr_file_head *head)
{
	return head->is_zip && head->has_npy;
}

/* --- Reading ------------------------------------------------------------------------------------ */

static enum tsr_status add_npy(struct tsr_checkpoint *c, const struct tsr_npy_header *h,
			       const char *name, struct tsr_array *a, struct tsr_err *err)
{
	const uint64_t *shape = tsr_arena_dup(c->arena, h->shape, h->rank * sizeof(*shape));
	struct tsr_layout *layout;

	if (!shape)
		return tsr_build_nomem(c, err);
	a->name = name;
	a->dtype = h->dtype;
	a->rank = h->rank;
	a->shape = shape;
	a->nbytes = h->nbytes;
	a->own_name = true;
	if (h->swapped || (h->fortran_order && h->rank > 1)) {
		layout = tsr_layout_whole(c->arena, a, h->fortran_order);
		if (!layout)
			return tsr_build_nomem(c, err);
		layout->swapped = h->swapped;
		a->layout = layout;
		a->has_crc = false;
	}
	return tsr_build_array(c, a, NULL, err);
}

static bool has_extension(const char *name)
{
	const size_t len = strlen(name);

	return len > 4 && strcmp(name + len - 4, ".npy") == 0;
}

/* A name without ".npy".  NULL: no memory. */
static const char *stem_of(struct tsr_checkpoint *c, const char *name)
{
	return tsr_arena_copy(c->arena, name, strlen(name) - (has_extension(name) ? 4 : 0));
}

/* Add the array of a file, which is named after the file. */
static enum tsr_status add_file(struct tsr_checkpoint *c, const char *path,
				const struct tsr_npy_header *header, struct tsr_array *a,
				struct tsr_err *err)
{
	const char *name = stem_of(c, tsr_path_name(path));

	a->offset = header->data_offset;
	return name ? add_npy(c, header, name, a, err) : tsr_build_nomem(c, err);
}

enum tsr_status tsr_npy_read(struct tsr_checkpoint *c, struct tsr_file *f,
			     const struct tsr_open_options *options, struct tsr_err *err)
{
	const uint64_t size = tsr_file_size(f);
	const size_t n = size < TSR_NPY_HEADER_MAX ? (size_t)size : TSR_NPY_HEADER_MAX;
	const char *path = tsr_file_path(f);
	TSR_OWNED(free) char *head = NULL;
	struct tsr_npy_header header;
	struct tsr_array a = { 0 };

	tsr_build_container(c, TSR_CONTAINER_NPY);
	TSR_TRY(tsr_build_file(c, f, &a.file, err));
	TSR_TRY(TSR_NEW(&head, n + 1, err, path));
	TSR_TRY(tsr_file_read(f, head, n, 0, err));
	TSR_TRY(tsr_npy_parse(head, n, size, options->as, path, &header, err));
	return add_file(c, path, &header, &a, err);
}

/* The checksum of the data alone, from that of the member and the header in front of the data. */
static void set_data_crc(struct tsr_checkpoint *c, const struct tsr_zip_member *m, const char *head,
			 const struct tsr_npy_header *header, struct tsr_array *a)
{
	const uint32_t before = tsr_crc32(0, head, header->data_offset);

	c->nunchecked += !m->has_crc;
	a->has_crc = m->has_crc;
	a->crc = m->crc ^ tsr_crc32_combine(before, 0, header->nbytes);
}

static enum tsr_status add_member(struct tsr_checkpoint *c, unsigned file,
				  const struct tsr_zip_member *m, enum tsr_dtype as, char *head,
				  struct tsr_err *err)
{
	const char *path = tsr_file_path(c->files[file]);
	const char *name = stem_of(c, m->name);
	TSR_SCOPED(tsr_text_free) struct tsr_text where = { 0 };
	struct tsr_array a = { .file = file, .offset = m->offset };
	struct tsr_npy_header header;
	size_t got;

	if (!has_extension(m->name))
		return tsr_fail(err, TSR_E_UNSUPPORTED,
				"%s: found a member %.200s among arrays, expected NAME.npy", path,
				m->name);
	if (!name)
		return tsr_build_nomem(c, err);
	tsr_text_printf(&where, "%s: %.200s", path, m->name);
	if (where.failed)
		return tsr_fail_nomem(err, path);
	TSR_TRY(tsr_zip_peek(c->files[file], m, head, TSR_NPY_HEADER_MAX, &got, where.bytes, err));
	TSR_TRY(tsr_npy_parse(head, got, m->nbytes, as, where.bytes, &header, err));
	if (m->deflated) {
		struct tsr_file *scratch = NULL;

		/* Where any part of it can be read. */
		TSR_TRY(tsr_zip_inflated(c->files[file], m, path, &scratch, err));
		a.offset = 0;
		TSR_TRY(tsr_build_file(c, scratch, &a.file, err));
	} else {
		set_data_crc(c, m, head, &header, &a);
	}
	a.offset += header.data_offset;
	return add_npy(c, &header, name, &a, err);
}

enum tsr_status tsr_npz_read(struct tsr_checkpoint *c, struct tsr_file *f,
			     const struct tsr_open_options *options, struct tsr_err *err)
{
	TSR_OWNED(tsr_zip_free) struct tsr_zip *z = NULL;
	TSR_OWNED(free) char *head = NULL;
	unsigned file;

	tsr_build_container(c, TSR_CONTAINER_NPZ);
	TSR_TRY(tsr_build_file(c, f, &file, err));
	TSR_TRY(tsr_zip_read(f, 0, tsr_file_size(f), tsr_file_path(f), &z, err));
	TSR_TRY(TSR_NEW(&head, TSR_NPY_HEADER_MAX, err, tsr_file_path(f)));
	for (size_t i = 0; i < z->nmembers; i++)
		TSR_TRY(add_member(c, file, &z->members[i], options->as, head, err));
	return TSR_OK;
}

/* --- Writing ------------------------------------------------------------------------------------ */

static enum tsr_status compose_header(const struct tsr_writer *w, const struct tsr_st_entry *a,
				      struct tsr_text *header, struct tsr_err *err)
{
	TSR_SCOPED(tsr_text_free) struct tsr_text where = { 0 };

	tsr_text_printf(&where, "%s: tensor %.200s", w->plan.path, a->name);
	if (where.failed)
		return tsr_fail_nomem(err, w->plan.path);
	TSR_TRY(tsr_npy_compose(a->dtype, a->rank, a->shape, where.bytes, header, err));
	return header->failed ? tsr_fail_nomem(err, w->plan.path) : TSR_OK;
}

enum tsr_status tsr_npz_lay_out(struct tsr_writer *w, struct tsr_err *err)
{
	struct tsr_zip_members *zip;

	TSR_TRY(tsr_writer_add_files(w, 1, err));
	TSR_TRY(tsr_writer_add_archives(w, 1, err));
	zip = &w->archives[0].zip;
	TSR_TRY(tsr_zip_members_init(zip, w->plan.narrays, w->plan.path, err));
	for (size_t i = 0; i < w->plan.narrays; i++) {
		const struct tsr_st_entry *a = &w->arrays[i];
		TSR_SCOPED(tsr_text_free) struct tsr_text header = { 0 };

		TSR_TRY(compose_header(w, a, &header, err));
		w->places[a->tag].member = (uint32_t)zip->n;
		TSR_TRY(tsr_zip_members_add(zip, "", a->name, ".npy", &header, a->nbytes, err));
	}
	w->files[0].nbytes = tsr_zip_layout(zip->entries, zip->n);
	for (size_t i = 0; i < w->plan.narrays; i++) {
		struct tsr_place *p = &w->places[w->arrays[i].tag];

		p->offset = tsr_zip_members_data(zip, p->member);
	}
	return TSR_OK;
}

enum tsr_status tsr_npy_lay_out(struct tsr_writer *w, struct tsr_err *err)
{
	const struct tsr_st_entry *a = w->arrays;

	if (w->plan.narrays != 1)
		return tsr_fail(
			err, TSR_E_UNSUPPORTED,
			"%s: found %zu tensors, expected 1: an .npy file holds one array; write "
			".npz",
			w->plan.path, w->plan.narrays);
	TSR_TRY(tsr_writer_add_files(w, 1, err));
	TSR_TRY(compose_header(w, a, &w->files[0].header, err));
	w->files[0].header_nbytes = w->files[0].header.nbytes;
	w->places[a->tag].offset = w->files[0].header_nbytes;
	w->files[0].nbytes = w->files[0].header_nbytes + a->nbytes;
	return TSR_OK;
}
