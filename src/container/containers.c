/* SPDX-License-Identifier: Apache-2.0 */
/* The table of containers, the row of .pt, and detecting which container a file is. */
#include "container/containers.h"

#include "base/fail.h"
#include "base/utf8.h"
#include "container/writer_layout.h"
#include "format/safetensors.h"
#include "format/zip.h"
#include "io/dir.h"
#include "torch/torch.h"
#include "torch/torch_write.h"

/* --- .pt ---------------------------------------------------------------------------------------- */

static bool detect_torch(const struct tsr_file_head *head)
{
	return head->is_zip && !head->has_npy;
}

static enum tsr_status read_torch(struct tsr_checkpoint *c, struct tsr_file *f,
				  const struct tsr_open_options *options, struct tsr_err *err)
{
	struct tsr_value *root = NULL;
	unsigned file;

	(void)options;
	tsr_build_container(c, TSR_CONTAINER_TORCH);
	TSR_TRY(tsr_build_file(c, f, &file, err));
	TSR_TRY(tsr_torch_read(c, file, 0, tsr_file_size(f), tsr_file_path(f), "", &root, err));
	return tsr_build_tree(c, root, err);
}

static enum tsr_status lay_out_torch(struct tsr_writer *w, struct tsr_err *err)
{
	struct tsr_zip_members *zip;
	TSR_OWNED(free) size_t *member = NULL;

	TSR_TRY(tsr_writer_add_files(w, 1, err));
	TSR_TRY(tsr_writer_add_archives(w, 1, err));
	zip = &w->archives[0].zip;
	TSR_TRY(tsr_torch_write_members(w->plan.c, w->plan.generation, zip, &member, w->plan.path,
					err));
	w->files[0].nbytes = tsr_zip_layout(zip->entries, zip->n);
	for (size_t i = 0; i < w->plan.narrays; i++) {
		const size_t tag = w->arrays[i].tag, at = member[TSR_TAG_TENSOR(tag)];

		w->places[tag] = (struct tsr_place){ .offset = tsr_zip_members_data(zip, at),
						     .member = (uint32_t)at };
	}
	return TSR_OK;
}

/* --- The table ---------------------------------------------------------------------------------- */

/* DCP is a directory, which open.c detects and reads (torch/dcp.h). */
static const struct tsr_container_row rows[TSR_CONTAINER_COUNT] = {
	[TSR_CONTAINER_SAFETENSORS] = { tsr_safetensors_detect,
					tsr_safetensors_read,
					tsr_safetensors_lay_out,
					{ ".safetensors" } },
	[TSR_CONTAINER_TORCH] = { detect_torch,
				  read_torch,
				  lay_out_torch,
				  { ".pt", ".pth", ".bin", ".ckpt" } },
	[TSR_CONTAINER_NPZ] = { tsr_npz_detect, tsr_npz_read, tsr_npz_lay_out, { ".npz" } },
	[TSR_CONTAINER_NPY] = { tsr_npy_detect, tsr_npy_read, tsr_npy_lay_out, { ".npy" } },
	[TSR_CONTAINER_DCP] = { NULL, NULL, tsr_dcp_lay_out, { NULL } },
};

const struct tsr_container_row *tsr_container_row(enum tsr_container container)
{
	return &rows[container];
}

size_t tsr_container_stem(const char *name, enum tsr_container *ret)
{
	const size_t len = strlen(name);

	for (unsigned i = 0; i < 4 * TSR_CONTAINER_COUNT; i++) {
		const char *end = rows[i / 4].ends[i % 4];

		if (!end || len == strlen(end) || !tsr_dir_name_ends_with(name, end))
			continue;
		*ret = (enum tsr_container)(i / 4);
		return len - strlen(end);
	}
	return 0;
}

/* --- What a file is ----------------------------------------------------------------------------- */

/* What the members of an archive show. */
struct members {
	bool arrays, pickle;
	size_t n;
};

static enum tsr_status list_members(const struct tsr_file *f, struct members *ret,
				    struct tsr_err *err)
{
	TSR_OWNED(tsr_zip_free) struct tsr_zip *z = NULL;

	TSR_TRY(tsr_zip_read(f, 0, tsr_file_size(f), tsr_file_path(f), &z, err));
	*ret = (struct members){ .n = z->nmembers };
	for (size_t i = 0; i < z->nmembers; i++) {
		ret->arrays = ret->arrays || tsr_dir_name_ends_with(z->members[i].name, ".npy");
		ret->pickle = ret->pickle ||
			      tsr_dir_name_ends_with(z->members[i].name, "/data.pkl");
	}
	return TSR_OK;
}

/* The length of a safetensors header can look like the start of an archive. */
static bool looks_like_zip(const struct tsr_file_head *head)
{
	return head->n >= 4 && !tsr_safetensors_detect(head) &&
	       (memcmp(head->bytes, "PK\3\4", 4) == 0 || memcmp(head->bytes, "PK\5\6", 4) == 0);
}

/* An archive of arrays, or else one of torch.save. */
static enum tsr_status look_into_zip(const struct tsr_file *f, struct tsr_file_head *head,
				     struct tsr_err *err)
{
	struct members members;

	head->is_zip = looks_like_zip(head);
	if (!head->is_zip)
		return TSR_OK;
	TSR_TRY(list_members(f, &members, err));
	head->has_npy = members.n == 0 || (members.arrays && !members.pickle);
	return TSR_OK;
}

/* --- What is not a container -------------------------------------------------------------------- */

/* Bytes of an unknown file that a message shows. */
#define SHOWN 16u

/* Whether the file begins as UTF-8 text; *shown_ret: how many bytes of its first line to show. */
static bool is_text(const struct tsr_file_head *head, size_t *shown_ret)
{
	const char *text = (const char *)head->bytes;
	size_t at = 0, len;
	uint32_t c = ' ';

	*shown_ret = 0;
	for (bool line = true; at < head->n && at < SHOWN; at += len) {
		len = tsr_utf8_next(text + at, head->n - at, &c);
		if (!len || (c < ' ' && c != '\t' && c != '\n' && c != '\r'))
			return false;
		line = line && c >= ' ';
		*shown_ret += line ? len : 0;
	}
	return at > 0;
}

/* A length that could be meant, or an object behind it: a safetensors file, but cut or damaged. */
static bool is_damaged_safetensors(const struct tsr_file_head *head)
{
	static const unsigned char zeros[4];

	return head->n < 8 || memcmp(head->bytes + 4, zeros, 4) == 0 ||
	       (head->n > 8 && head->bytes[8] == '{');
}

#define EXPECTED "expected safetensors, an index, .pt, DCP, .npz, .npy or a recording"

static enum tsr_status refuse(const struct tsr_file *f, const struct tsr_file_head *head,
			      struct tsr_err *err)
{
	const char *old = tsr_torch_old_kind(head->bytes, head->n);
	const unsigned char *b = head->bytes;
	size_t n = 0;

	if (old)
		return tsr_fail(err, TSR_E_UNSUPPORTED, "%s: %s", tsr_file_path(f), old);
	if (!is_text(head, &n))
		return tsr_fail(
			err, TSR_E_FORMAT,
			"%s: not a kind of file that tersor reads: found bytes %02x %02x %02x "
			"%02x %02x %02x %02x %02x, " EXPECTED,
			tsr_file_path(f), b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]);
	return tsr_fail(err, TSR_E_FORMAT,
			"%s: not a kind of file that tersor reads: found text starting with "
			"'%.*s', " EXPECTED,
			tsr_file_path(f), (int)n, (const char *)b);
}

/* --- Reading ------------------------------------------------------------------------------------ */

static enum tsr_status find_row(const struct tsr_file *f, const struct tsr_container_row **ret,
				struct tsr_err *err)
{
	struct tsr_file_head head;
	size_t shown;

	TSR_TRY(tsr_file_head_read(f, &head, err));
	TSR_TRY(look_into_zip(f, &head, err));
	for (size_t i = 0; i < TSR_CONTAINER_COUNT; i++) {
		*ret = &rows[i];
		if (rows[i].detect && rows[i].detect(&head))
			return TSR_OK;
	}
	TSR_TRY(tsr_foreign_refuse(f, &head, err));
	*ret = &rows[TSR_CONTAINER_SAFETENSORS];
	if (!tsr_torch_old_kind(head.bytes, head.n) && !is_text(&head, &shown) &&
	    is_damaged_safetensors(&head))
		return TSR_OK;
	return refuse(f, &head, err);
}

/* Whether the first member of an archive that cannot be listed is one of torch.save or NumPy. */
static bool begins_like_ours(const struct tsr_file_head *head)
{
	const size_t lead = 30; /* of a local header, before the name */
	char name[64];
	size_t n;

	if (head->n < lead)
		return false;
	n = head->bytes[26] + 256u * head->bytes[27];
	if (n >= sizeof(name) || lead + n > head->n)
		return false;
	memcpy(name, head->bytes + lead, n);
	name[n] = '\0';
	return tsr_dir_name_ends_with(name, ".npy") || tsr_dir_name_ends_with(name, "/data.pkl") ||
	       tsr_dir_name_ends_with(name, "/.format_version");
}

enum tsr_status tsr_container_probe(const struct tsr_file *f, bool *ret, struct tsr_err *err)
{
	struct members members = { 0 };
	struct tsr_file_head head;

	TSR_TRY(tsr_file_head_read(f, &head, err));
	*ret = tsr_safetensors_detect(&head) || tsr_npy_detect(&head) ||
	       tsr_torch_old_kind(head.bytes, head.n);
	if (!looks_like_zip(&head))
		return TSR_OK;
	if (list_members(f, &members, NULL) == TSR_OK)
		*ret = members.pickle || members.arrays;
	else
		*ret = begins_like_ours(&head);
	return TSR_OK;
}

enum tsr_status tsr_container_read(struct tsr_checkpoint *c, struct tsr_file *f,
				   const struct tsr_open_options *options, struct tsr_err *err)
{
	const struct tsr_container_row *row = NULL;
	const enum tsr_status status = find_row(f, &row, err);

	if (status != TSR_OK) {
		tsr_file_close(f);
		return status;
	}
	return row->read(c, f, options, err);
}
