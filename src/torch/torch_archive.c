/* SPDX-License-Identifier: Apache-2.0 */
/* What torch.save puts around a pickle and its storages. */
#include "torch/torch_archive.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/fail.h"
#include "io/dir.h"
#include "text/bytes.h"
#include "text/text.h"
#include "format/pickle.h"

/* The versions of the archive that PyTorch reads. */
#define VERSION_MIN 1u
#define VERSION_MAX 10u

/* The most that the small members may have. */
#define SMALL_NBYTES 64u

/* The longest name behind the root that is looked for: "data/" and 10 digits, or a fixed one. */
#define NAME_ROOM 64u

enum tsr_status tsr_torch_fail(const struct tsr_torch_archive *a, enum tsr_status code,
			       const char *at, const char *fmt, ...)
{
	char found[TSR_ERR_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(found, sizeof(found), fmt, ap);
	va_end(ap);
	return tsr_fail(a->err, code, "%.400s%s: %s: %s", a->where, a->zip ? ": data.pkl" : "",
			*at ? at : "the root", found);
}

/* --- Members -------------------------------------------------------------------------------- */

const struct tsr_zip_member *tsr_torch_find(const struct tsr_torch_archive *a, const char *name)
{
	snprintf(a->name + a->root_len, NAME_ROOM, "%s", name);
	return tsr_zip_find(a->zip, a->name);
}

/* The same, marked as used. */
static const struct tsr_zip_member *use(struct tsr_torch_archive *a, const char *name)
{
	const struct tsr_zip_member *m = tsr_torch_find(a, name);

	if (m)
		a->used[m - a->zip->members] = true;
	return m;
}

/* What is inflated into memory, such as a pickle: PyTorch deflates nothing, other programs do. */
#define DEFLATED_FREE (UINT64_C(16) << 20)
#define DEFLATED_RATIO 64u

/* A whole member into memory to be freed; one without a checksum is counted. */
static enum tsr_status load(struct tsr_torch_archive *a, const struct tsr_zip_member *m,
			    uint64_t max_nbytes, char **ret)
{
	const uint64_t inflated = DEFLATED_FREE + DEFLATED_RATIO * m->stored_nbytes;
	void *bytes = NULL;

	if (m->deflated && m->nbytes > inflated)
		return tsr_fail(a->err, TSR_E_LIMIT,
				"%s: member %.200s: %" PRIu64 " bytes out of %" PRIu64
				" deflated ones are over the limit of %u times and 16 MiB",
				a->where, m->name, m->nbytes, m->stored_nbytes, DEFLATED_RATIO);
	TSR_TRY(tsr_zip_load(a->c->files[a->file], m, max_nbytes, a->where, &bytes, a->err));
	a->c->nunchecked += !m->has_crc;
	*ret = bytes;
	return TSR_OK;
}

/* --- The root directory --------------------------------------------------------------------- */

/* Names of members that are checkpoints of their own, or "" if it is an archive of torch.save. */
static void list_others(const struct tsr_zip *z, struct tsr_text *names)
{
	static const char *const ends[] = { ".pth", ".pt", ".safetensors", ".npz", ".h5" };

	for (size_t i = 0; i < z->nmembers; i++) {
		const char *name = z->members[i].name;

		if (tsr_dir_name_ends_with(name, "/data.pkl")) {
			names->nbytes = 0;
			return;
		}
		for (size_t k = 0; k < sizeof(ends) / sizeof(*ends) && names->nbytes < 200; k++) {
			if (tsr_dir_name_ends_with(name, ends[k]))
				tsr_text_printf(names, "%s%.60s", names->nbytes ? ", " : "", name);
		}
	}
}

/* Other programs pack files into an archive, such as Stable-Baselines3 and Keras. */
static enum tsr_status check_others(const struct tsr_torch_archive *a)
{
	TSR_SCOPED(tsr_text_free) struct tsr_text names = { 0 };

	list_others(a->zip, &names);
	if (names.nbytes)
		return tsr_fail(a->err, TSR_E_UNSUPPORTED,
				"%s: found a zip archive of other files, such as Stable-Baselines3 "
				"or Keras writes; unzip it and name one of them (%s)",
				a->where, names.bytes);
	return TSR_OK;
}

/* The folder of the first member; all others must be in it. */
static enum tsr_status find_root(struct tsr_torch_archive *a)
{
	const struct tsr_zip_member *m = a->zip->members;
	const char *slash = a->zip->nmembers ? strchr(m->name, '/') : NULL;

	TSR_TRY(check_others(a));
	if (!slash)
		return tsr_fail(a->err, TSR_E_FORMAT,
				"%s: found a zip archive that starts with member \"%.200s\", "
				"expected a directory with data.pkl; not a file of torch.save",
				a->where, a->zip->nmembers ? m->name : "");
	a->root_len = (size_t)(slash - m->name) + 1;
	a->name = malloc(a->root_len + NAME_ROOM);
	if (!a->name)
		return tsr_fail_nomem(a->err, a->where);
	memcpy(a->name, m->name, a->root_len);
	a->name[a->root_len] = '\0';
	for (size_t i = 0; i < a->zip->nmembers; i++) {
		if (strncmp(m[i].name, a->name, a->root_len) != 0)
			return tsr_fail(a->err, TSR_E_FORMAT,
					"%s: found member %.200s, expected all to be in directory "
					"%.200s as the first one is",
					a->where, m[i].name, a->name);
	}
	return TSR_OK;
}

/* --- Programs ------------------------------------------------------------------------------- */

static const struct {
	const char *name; /* below the root; a directory if it ends with a slash */
	const char *kind;
} programs[] = {
	{ "constants.pkl", "a TorchScript program" },
	{ "code/", "a TorchScript program" },
	{ "archive_format", "an exported program (torch.export or ExecuTorch)" },
	{ "models/", "an exported program (torch.export or ExecuTorch)" },
};

static bool is_program(const char *name, size_t i)
{
	const size_t len = strlen(programs[i].name);

	if (programs[i].name[len - 1] == '/')
		return strncmp(name, programs[i].name, len) == 0;
	return strcmp(name, programs[i].name) == 0;
}

/* --- What it says about itself -------------------------------------------------------------- */

static bool is_version(const char *text, size_t n)
{
	uint64_t value;

	n -= n && text[n - 1] == '\n';
	return n <= 2 && tsr_digits(text, n, VERSION_MAX, &value) && value >= VERSION_MIN;
}

/* A member that is small, and its length; NULL: there is none. */
static enum tsr_status load_small(struct tsr_torch_archive *a, const char *name, char **ret,
				  int *n_ret)
{
	const struct tsr_zip_member *m = use(a, name);

	*ret = NULL;
	*n_ret = m ? (int)m->nbytes : 0;
	return m ? load(a, m, SMALL_NBYTES, ret) : TSR_OK;
}

/* @present is set if there is such a member, which then is a version that can be read. */
static enum tsr_status check_version(struct tsr_torch_archive *a, const char *name, bool *present)
{
	TSR_OWNED(free) char *text = NULL;
	int n;

	TSR_TRY(load_small(a, name, &text, &n));
	*present = *present || text;
	if (text && !is_version(text, (size_t)n))
		return tsr_fail(a->err, TSR_E_UNSUPPORTED,
				"%s: %s: found archive version \"%.*s\", expected %u to %u",
				a->where, name, n, text, VERSION_MIN, VERSION_MAX);
	return TSR_OK;
}

/* There is none before 2.1. */
static enum tsr_status read_byteorder(struct tsr_torch_archive *a)
{
	TSR_OWNED(free) char *text = NULL;
	int n;

	TSR_TRY(load_small(a, "byteorder", &text, &n));
	a->swapped = text && n == 3 && memcmp(text, "big", 3) == 0;
	if (text && !a->swapped && (n != 6 || memcmp(text, "little", 6) != 0))
		return tsr_fail(a->err, TSR_E_UNSUPPORTED,
				"%s: byteorder: found \"%.*s\", expected little or big", a->where,
				n, text);
	return TSR_OK;
}

static enum tsr_status read_members(struct tsr_torch_archive *a)
{
	static const char *const ignored[] = { ".format_version", ".storage_alignment",
					       ".data/serialization_id" };
	bool has_version = false;

	if (!use(a, "data.pkl"))
		return tsr_fail(
			a->err, TSR_E_FORMAT,
			"%s: found a zip archive without data.pkl: not a file of torch.save",
			a->where);
	TSR_TRY(check_version(a, "version", &has_version));
	TSR_TRY(check_version(a, ".data/version", &has_version));
	if (!has_version)
		return tsr_fail(a->err, TSR_E_FORMAT,
				"%s: found no member version, expected one in a file of torch.save",
				a->where);
	for (size_t i = 0; i < sizeof(ignored) / sizeof(*ignored); i++)
		use(a, ignored[i]);
	return read_byteorder(a);
}

enum tsr_status tsr_torch_open(struct tsr_torch_archive *a, uint64_t base, uint64_t nbytes)
{
	TSR_TRY(tsr_zip_read(a->c->files[a->file], base, nbytes, a->where, &a->zip, a->err));
	TSR_TRY(TSR_NEW(&a->used, a->zip->nmembers + 1, a->err, a->where));
	TSR_TRY(TSR_NEW(&a->records, a->zip->nmembers + 1, a->err, a->where));
	TSR_TRY(find_root(a));
	for (size_t m = 0; m < a->zip->nmembers; m++) {
		for (size_t i = 0; i < sizeof(programs) / sizeof(*programs); i++) {
			if (!is_program(a->zip->members[m].name + a->root_len, i))
				continue;
			return tsr_fail(a->err, TSR_E_UNSUPPORTED,
					"%s: found %s (it has %s), expected a state_dict; save the "
					"state_dict() of the module instead",
					a->where, programs[i].kind, programs[i].name);
		}
	}
	return read_members(a);
}

void tsr_torch_close(struct tsr_torch_archive *a)
{
	tsr_zip_free(a->zip);
	free(a->name);
	free(a->used);
	free(a->records);
}

/* --- The pickle ----------------------------------------------------------------------------- */

enum tsr_status tsr_torch_load(struct tsr_torch_archive *a, struct tsr_arena *arena,
			       struct tsr_value **ret)
{
	const struct tsr_zip_member *m = tsr_torch_find(a, "data.pkl");
	TSR_SCOPED(tsr_text_free) struct tsr_text where = { 0 };
	TSR_OWNED(free) char *bytes = NULL;

	TSR_TRY(load(a, m, TSR_TORCH_PICKLE_MAX, &bytes));
	tsr_text_printf(&where, "%s: data.pkl", a->where);
	return where.failed
		       ? tsr_fail_nomem(a->err, a->where)
		       : tsr_pickle_read(bytes, (size_t)m->nbytes, where.bytes, arena, ret, a->err);
}

/* --- What came before ----------------------------------------------------------------------- */

#define SAVE_AGAIN "load it in PyTorch and save it again with torch.save of version 1.6 or later"

static bool holds(const unsigned char *head, size_t n, const char *magic, size_t nmagic)
{
	for (size_t at = 0; at + nmagic <= n; at++) {
		if (memcmp(head + at, magic, nmagic) == 0)
			return true;
	}
	return false;
}

const char *tsr_torch_old_kind(const unsigned char *head, size_t n)
{
	/* LONG1, its length, and the number that legacy files start with. */
	static const char legacy[] = "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";

	if (n >= 2 && head[0] == 0x80 && holds(head, n < 32 ? n : 32, legacy, sizeof(legacy) - 1))
		return "a legacy torch.save file (before PyTorch 1.6, or saved with "
		       "_use_new_zipfile_serialization=False): " SAVE_AGAIN;
	if (n >= 262 && memcmp(head + 257, "ustar", 5) == 0)
		return "a tar archive, as torch.save wrote before PyTorch 0.2: " SAVE_AGAIN;
	if (n >= 8 && memcmp(head, "PYTORCH1", 8) == 0)
		return "a PYTORCH1 archive, of a preview of PyTorch 1.0: " SAVE_AGAIN;
	if (n >= 2 && head[0] == 0x80 && head[1] >= 2 && head[1] <= 5)
		return "a Python pickle outside of an archive: load it in Python and save it again "
		       "with torch.save";
	return NULL;
}
