/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of parts: what each did and found, as bytes. */
#include "parts/part_report.h"

#include "base/fail.h"
#include "io/file.h"
#include "io/hash.h"
#include "tersor/version.h"

#define MAGIC "TSRPART1"

static const char version[sizeof(((struct tsr_part_header *)NULL)->version)] = TSR_VERSION;

/* A terabyte of FP32 in one part has a million pieces, of about a kilobyte each; of an audit, 50. */
#define REPORT_NBYTES_MAX (UINT64_C(64) << 30)

/* Of a pipeline and of a file that all parts write, what is in a report; the rest is in memory. */
#define RUN_NBYTES offsetof(struct tsr_part_run, found)
#define FILE_NBYTES (2 * sizeof(uint64_t))

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "reports are little-endian");
_Static_assert(sizeof(struct tsr_part_header) == 96 && RUN_NBYTES == 80, "reports have no padding");

/* --- Writing ------------------------------------------------------------------------------------ */

void tsr_part_report_begin(const struct tsr_text *words, struct tsr_text *text)
{
	const struct tsr_part_header header = { .magic = { 0 } };

	tsr_text_put(text, (const char *)&header, sizeof(header));
	tsr_text_put(text, words->bytes, words->nbytes);
}

size_t tsr_part_report_open_run(struct tsr_text *text)
{
	const char nothing[RUN_NBYTES] = { 0 };

	tsr_text_put(text, nothing, sizeof(nothing));
	return text->nbytes - sizeof(nothing);
}

void tsr_part_report_close_run(struct tsr_text *text, size_t at, const struct tsr_part_run *run,
			       const struct tsr_err *failure)
{
	struct tsr_part_run r = *run;

	if (failure) {
		r.status = failure->code;
		r.hint = failure->hint;
		r.message_nbytes = strlen(failure->msg);
		tsr_text_put(text, failure->msg, (size_t)r.message_nbytes);
	}
	if (!text->failed)
		memcpy(text->bytes + at, &r, RUN_NBYTES);
}

static void put_file(struct tsr_text *text, const struct tsr_part_file *f)
{
	const uint64_t sizes[] = { strlen(f->path) + 1, f->wrote.nbytes };

	_Static_assert(sizeof(sizes) == FILE_NBYTES, "as in a report");
	tsr_text_put(text, (const char *)sizes, sizeof(sizes));
	tsr_text_put(text, f->path, (size_t)sizes[0]);
	tsr_text_put(text, f->wrote.nbytes ? f->wrote.bytes : "", f->wrote.nbytes);
	text->failed = text->failed || f->wrote.failed;
}

/* Of a report without its header, as it follows the coded pieces. */
static uint64_t hash_of(const struct tsr_part_header *h, const char *bytes, size_t nbytes)
{
	return tsr_hash(bytes, nbytes, tsr_hash(h, offsetof(struct tsr_part_header, hash), 0));
}

void tsr_part_report_end(struct tsr_text *text, const struct tsr_part_header *header,
			 const struct tsr_part_file *files, size_t n)
{
	struct tsr_part_header h = *header;
	const size_t runs_end = text->nbytes;

	memcpy(h.magic, MAGIC, sizeof(h.magic));
	memcpy(h.version, version, sizeof(version));
	h.runs_nbytes = runs_end - sizeof(h) - h.words_nbytes;
	for (size_t i = 0; i < n; i++)
		put_file(text, &files[i]);
	if (text->failed)
		return;
	h.files_nbytes = text->nbytes - runs_end;
	h.hash = hash_of(&h, text->bytes + sizeof(h), text->nbytes - sizeof(h));
	memcpy(text->bytes, &h, sizeof(h));
}

/* --- Reading ------------------------------------------------------------------------------------ */

/* The next @nbytes bytes, which *@at goes past; NULL if there are fewer. */
static const char *take(const char **at, const char *end, uint64_t nbytes)
{
	const char *taken = *at;

	if (nbytes > (uint64_t)(end - taken))
		return NULL;
	*at += nbytes;
	return taken;
}

bool tsr_part_keeps_failure(enum tsr_status status)
{
	return status == TSR_E_FORMAT || status == TSR_E_UNSUPPORTED || status == TSR_E_LIMIT ||
	       status == TSR_E_BOUND;
}

static bool take_run(const char **at, const char *end, struct tsr_part_run *ret)
{
	const char *head = take(at, end, RUN_NBYTES);
	const uint64_t left = (uint64_t)(end - *at);

	if (!head)
		return false;
	memcpy(ret, head, RUN_NBYTES);
	if (ret->first > ret->end || ret->end > ret->njobs || ret->message_nbytes >= TSR_ERR_MAX ||
	    (ret->found_nbytes && ret->nfound > left / ret->found_nbytes))
		return false;
	/* Only failures that would be the same in any process are in reports. */
	if (ret->status
		    ? !tsr_part_keeps_failure((enum tsr_status)ret->status) ||
			      ret->hint > TSR_HINT_PACK_BASE || ret->nfound >= ret->end - ret->first
		    : ret->nfound != ret->end - ret->first)
		return false;
	ret->found = take(at, end, ret->nfound * ret->found_nbytes);
	ret->message = take(at, end, ret->message_nbytes);
	return ret->found && ret->message;
}

static bool take_file(const char **at, const char *end, struct tsr_part_file *ret)
{
	const char *head = take(at, end, FILE_NBYTES);
	uint64_t sizes[2];

	if (!head)
		return false;
	memcpy(sizes, head, sizeof(sizes));
	*ret = (struct tsr_part_file){ .path = take(at, end, sizes[0]) };
	ret->wrote.bytes = (char *)take(at, end, sizes[1]);
	ret->wrote.nbytes = (size_t)sizes[1];
	return ret->path && ret->wrote.bytes && sizes[0] && !ret->path[sizes[0] - 1] &&
	       sizes[1] % sizeof(struct tsr_part_range) == 0;
}

enum tsr_status tsr_part_run_failure(const struct tsr_part_run *run, struct tsr_err *err)
{
	if (!run->status)
		return TSR_OK;
	return tsr_fail_hint(err, (enum tsr_status)run->status, (enum tsr_hint)run->hint, "%.*s",
			     (int)run->message_nbytes, run->message);
}

/* The header, of a file of @nbytes bytes. */
static enum tsr_status check_header(const struct tsr_part_report *r, uint64_t nbytes,
				    struct tsr_err *err)
{
	const struct tsr_part_header *h = &r->header;
	const uint64_t sizes[] = { sizeof(*h), h->data_nbytes, h->words_nbytes, h->runs_nbytes,
				   h->files_nbytes };
	uint64_t sum = 0;

	if (memcmp(h->magic, MAGIC, sizeof(h->magic)) != 0)
		return tsr_fail(err, TSR_E_FORMAT,
				"%s: is no report of a part: found '%.8s', expected " MAGIC,
				r->name, h->magic);
	if (memcmp(h->version, version, sizeof(version)) != 0)
		return tsr_fail(err, TSR_E_FORMAT,
				"%s: found a part by tersor %.40s, expected tersor " TSR_VERSION,
				r->name, h->version);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		if (sizes[i] > nbytes - sum)
			return tsr_fail(err, TSR_E_FORMAT,
					"%s: found %" PRIu64 " bytes, expected more", r->name,
					nbytes);
		sum += sizes[i];
	}
	if (sum != nbytes)
		return tsr_fail(err, TSR_E_FORMAT, "%s: found %" PRIu64 " bytes, expected %" PRIu64,
				r->name, nbytes, sum);
	if (sum - h->data_nbytes > REPORT_NBYTES_MAX)
		return tsr_fail(err, TSR_E_LIMIT,
				"%s: found a report of %" PRIu64 " bytes, the limit is %" PRIu64,
				r->name, sum - h->data_nbytes, REPORT_NBYTES_MAX);
	return TSR_OK;
}

static enum tsr_status bad(const struct tsr_part_report *r, const char *what, struct tsr_err *err)
{
	return tsr_fail(err, TSR_E_FORMAT, "%s: is no report of a part: its %s not as expected",
			r->name, what);
}

/* Whether all that is behind the header is in its bounds; what is found later was checked here. */
static enum tsr_status check_all(struct tsr_part_report *r, struct tsr_err *err)
{
	const struct tsr_part_header *h = &r->header;
	const char *at = r->bytes + h->words_nbytes;
	const uint64_t hash = hash_of(h, r->bytes, (size_t)(r->end - r->bytes));
	struct tsr_part_run run;
	struct tsr_part_file file;

	if (hash != h->hash)
		return tsr_fail(err, TSR_E_FORMAT,
				"%s: is damaged: found hash %016" PRIx64 ", expected %016" PRIx64,
				r->name, hash, h->hash);
	if (h->number < 1 || h->number > h->count || h->count > TSR_PARTS_MAX)
		return bad(r, "number is", err);
	if (!h->words_nbytes || at[-1])
		return bad(r, "words are", err);
	r->run = at;
	r->files = at + h->runs_nbytes;
	while (at < r->files) {
		if (!take_run(&at, r->files, &run))
			return bad(r, "pipelines are", err);
	}
	while (at < r->end) {
		if (!take_file(&at, r->end, &file))
			return bad(r, "files are", err);
	}
	return TSR_OK;
}

/* Bytes of a report: of the text in memory, or of the file. */
struct source {
	const char *text;
	struct tsr_file *file;
	uint64_t nbytes;
};

static enum tsr_status read_at(const struct source *from, void *bytes, uint64_t nbytes,
			       uint64_t offset, struct tsr_err *err)
{
	if (from->file)
		return tsr_file_read(from->file, bytes, (size_t)nbytes, offset, err);
	memcpy(bytes, from->text + offset, (size_t)nbytes);
	return TSR_OK;
}

static enum tsr_status read_report(const struct source *from, struct tsr_part_report *r,
				   struct tsr_err *err)
{
	const uint64_t size = sizeof(r->header);
	uint64_t rest;

	TSR_TRY(read_at(from, &r->header, from->nbytes < size ? from->nbytes : size, 0, err));
	TSR_TRY(check_header(r, from->nbytes, err));
	rest = from->nbytes - size - r->header.data_nbytes;
	TSR_TRY(TSR_NEW(&r->bytes, (size_t)rest + 1, err, r->name));
	r->end = r->bytes + rest;
	TSR_TRY(read_at(from, r->bytes, rest, from->nbytes - rest, err));
	return check_all(r, err);
}

void tsr_part_report_free(struct tsr_part_report *r)
{
	free(r->bytes);
	free(r->name);
}

enum tsr_status tsr_part_report_take(const char *name, const char *text, size_t nbytes,
				     struct tsr_part_report *ret, struct tsr_err *err)
{
	TSR_SCOPED(tsr_part_report_free) struct tsr_part_report r = { .name = strdup(name) };
	TSR_OWNED(tsr_file_close) struct tsr_file *f = NULL;

	if (!r.name)
		return tsr_fail_nomem(err, name);
	if (!text) {
		TSR_TRY(tsr_file_open(name, &f, err));
		nbytes = (size_t)tsr_file_size(f);
	}
	TSR_TRY(read_report(&(struct source){ text, f, nbytes }, &r, err));
	*ret = r;
	r = (struct tsr_part_report){ 0 };
	return TSR_OK;
}

enum tsr_status tsr_part_report_run(const struct tsr_part_report *r, struct tsr_part_run *ret,
				    struct tsr_err *err)
{
	const char *at = r->run;

	if (!take_run(&at, r->files, ret))
		return tsr_fail(err, TSR_E_FORMAT, "%s: does not say all that was done", r->name);
	return TSR_OK;
}

void tsr_part_report_next(struct tsr_part_report *r)
{
	struct tsr_part_run run;

	take_run(&r->run, r->files, &run);
}

void tsr_part_report_skip_to(struct tsr_part_report *r, uint64_t file)
{
	struct tsr_part_run run;

	while (tsr_part_report_run(r, &run, NULL) == TSR_OK && run.file < file)
		tsr_part_report_next(r);
}

/* --- Files that all parts write ----------------------------------------------------------------- */

/* Read again what a part wrote into a file: the disk, the network or somebody else may have lost it. */
static enum tsr_status check_range(const struct tsr_part_report *r, const struct tsr_file *f,
				   const struct tsr_part_range *range, struct tsr_err *err)
{
	const bool fits = range->nbytes <= tsr_file_size(f);
	TSR_OWNED(free) unsigned char *bytes = NULL;

	if (fits) {
		TSR_TRY(TSR_NEW(&bytes, (size_t)range->nbytes + 1, err, tsr_file_path(f)));
		TSR_TRY(tsr_file_read(f, bytes, (size_t)range->nbytes, range->offset, err));
	}
	if (fits && tsr_hash(bytes, (size_t)range->nbytes, 0) == range->hash)
		return TSR_OK;
	return tsr_fail(err, TSR_E_FORMAT,
			"%s: found other bytes from byte %" PRIu64
			" on than part %u wrote; remove %s and do that part again",
			tsr_file_path(f), range->offset, r->header.number, r->name);
}

static enum tsr_status check_written(const struct tsr_part_report *r,
				     const struct tsr_part_file *file, struct tsr_err *err)
{
	TSR_OWNED(tsr_file_close) struct tsr_file *f = NULL;
	struct tsr_part_range range;

	TSR_TRY(tsr_file_open(file->path, &f, err));
	for (size_t at = 0; at < file->wrote.nbytes; at += sizeof(range)) {
		memcpy(&range, file->wrote.bytes + at, sizeof(range));
		TSR_TRY(check_range(r, f, &range, err));
	}
	return TSR_OK;
}

enum tsr_status tsr_part_report_wrote(const struct tsr_part_report *r, const char *path,
				      struct tsr_err *err)
{
	struct tsr_part_file f;

	for (const char *at = r->files; take_file(&at, r->end, &f);) {
		if (!path || strcmp(f.path, path) == 0)
			TSR_TRY(check_written(r, &f, err));
	}
	return TSR_OK;
}
