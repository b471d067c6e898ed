/* SPDX-License-Identifier: Apache-2.0 */
/* A command's work in parts: one of them, or all of them to be joined. */
#include "parts/part.h"

#include "base/grow.h"
#include "base/pipeline.h"
#include "io/dir.h"
#include "io/file.h"
#include "io/hash.h"
#include "parts/part_report.h"
#include "parts/part_state.h"
#include "tersor/version.h"

/* --- Requests ----------------------------------------------------------------------------------- */

/* The words of a request, each with its NUL: the same for all parts of a command. */
static void put_words(const struct tsr_part_request *r, struct tsr_text *words)
{
	tsr_text_put(words, r->command, strlen(r->command) + 1);
	tsr_text_put(words, r->path, strlen(r->path) + 1);
	tsr_text_put(words, r->words.nbytes ? r->words.bytes : "", r->words.nbytes);
}

/* The request that p->words say, which end in a NUL; false if they have no path. */
static bool take_words(struct tsr_parts *p)
{
	struct tsr_part_request *r = &p->request;
	char *at = p->words.bytes, *const end = at + p->words.nbytes;

	r->command = at;
	at += strlen(at) + 1;
	r->path = at;
	if (at == end)
		return false;
	at += strlen(at) + 1;
	r->words = (struct tsr_text){ .bytes = at, .nbytes = (size_t)(end - at) };
	return true;
}

enum tsr_status tsr_part_start(struct tsr_parts *p, struct tsr_err *err)
{
	if (p->words.failed)
		return tsr_fail_nomem(err, "parts");
	if (!take_words(p))
		return tsr_fail(err, TSR_E_FORMAT, "parts: found no path in their words");
	p->command = tsr_hash(TSR_VERSION, sizeof(TSR_VERSION), p->request.count);
	p->command = tsr_hash(p->words.bytes, p->words.nbytes, p->command);
	return TSR_OK;
}

/* --- One part ----------------------------------------------------------------------------------- */

enum tsr_status tsr_part_new(const struct tsr_part_request *request, struct tsr_parts **ret,
			     struct tsr_err *err)
{
	TSR_OWNED(tsr_part_free) struct tsr_parts *p = NULL;

	if (request->number < 1 || request->number > request->count ||
	    request->count > TSR_PARTS_MAX)
		return tsr_fail(err, TSR_E_USAGE,
				"%s: found part %u of %u, expected 1 of 1 to %u of %u",
				request->path, request->number, request->count, TSR_PARTS_MAX,
				TSR_PARTS_MAX);
	TSR_TRY(TSR_NEW(&p, 1, err, request->path));
	p->request = *request;
	put_words(request, &p->words);
	TSR_TRY(TSR_NEW(&p->load, request->count, err, request->path));
	TSR_TRY(tsr_part_start(p, err));
	tsr_part_report_begin(&p->words, &p->text);
	return TSR_GIVE(ret, p);
}

static enum tsr_status create_report(struct tsr_parts *p, struct tsr_err *err)
{
	const struct tsr_part_request *r = &p->request;
	TSR_OWNED(free) char *path = NULL;

	TSR_TRY(tsr_part_report_path(r->path, r->number, r->count, &path, err));
	return tsr_outfile_create(path, true, 0, &p->out, err);
}

/* The header goes before the coded pieces, which are there, and the rest behind them. */
static enum tsr_status write_report(struct tsr_parts *p, struct tsr_err *err)
{
	const size_t header = sizeof(struct tsr_part_header);

	if (!p->out)
		TSR_TRY(create_report(p, err));
	TSR_TRY(tsr_outfile_write(p->out, p->text.bytes, header, 0, err));
	TSR_TRY(tsr_outfile_write(p->out, p->text.bytes + header, p->text.nbytes - header,
				  header + p->data_nbytes, err));
	return tsr_outfile_publish(&p->out, err);
}

/* --- Bytes without a place ---------------------------------------------------------------------- */

enum tsr_status tsr_part_put(struct tsr_parts *p, const void *bytes, size_t nbytes,
			     struct tsr_err *err)
{
	if (!p->out)
		TSR_TRY(create_report(p, err));
	TSR_TRY(tsr_outfile_write(p->out, bytes, nbytes,
				  sizeof(struct tsr_part_header) + p->data_nbytes, err));
	p->data_nbytes += nbytes;
	return TSR_OK;
}

enum tsr_status tsr_part_get(struct tsr_parts *p, void *bytes, size_t nbytes, uint64_t hash,
			     struct tsr_err *err)
{
	struct tsr_part_report *r = &p->reports[p->joined - 1];
	const uint64_t left = r->header.data_nbytes - r->data_at;
	uint64_t found;

	if (nbytes > left)
		return tsr_fail(err, TSR_E_FORMAT, "%s: found %" PRIu64 " bytes for a piece of %zu",
				r->name, left, nbytes);
	/* Of the part whose jobs are joined, in place of another's: there may be many. */
	if (!p->read || p->reading != p->joined) {
		tsr_file_close(p->read);
		p->read = NULL;
		p->reading = p->joined;
		TSR_TRY(tsr_file_open(r->name, &p->read, err));
	}
	TSR_TRY(tsr_file_read(p->read, bytes, nbytes, sizeof(r->header) + r->data_at, err));
	found = tsr_hash(bytes, nbytes, 0);
	if (found != hash)
		return tsr_fail(err, TSR_E_FORMAT,
				"%s: is damaged: found hash %016" PRIx64 " of a piece, expected "
				"%016" PRIx64,
				r->name, found, hash);
	r->data_at += nbytes;
	return TSR_OK;
}

/* Whether all bytes in the reports were of some piece. */
static enum tsr_status check_read(const struct tsr_parts *p, struct tsr_err *err)
{
	for (unsigned i = 0; i < p->request.count; i++) {
		const struct tsr_part_report *r = &p->reports[i];

		if (r->data_at != r->header.data_nbytes)
			return tsr_fail(err, TSR_E_FORMAT,
					"%s: found %" PRIu64 " bytes of pieces, expected %" PRIu64,
					r->name, r->header.data_nbytes, r->data_at);
	}
	return TSR_OK;
}

/* --- Files, one after the other ----------------------------------------------------------------- */

void tsr_part_next_file(struct tsr_parts *p)
{
	if (!p)
		return;
	p->file++;
	for (unsigned i = 0; p->joins && i < p->request.count; i++)
		tsr_part_report_skip_to(&p->reports[i], p->file);
}

void tsr_part_end_files(struct tsr_parts *p)
{
	if (p)
		p->file = 0;
}

bool tsr_part_is_of_files(const struct tsr_parts *p)
{
	return p && p->file;
}

/* --- The end of a part -------------------------------------------------------------------------- */

enum tsr_status tsr_part_end(struct tsr_parts *p, struct tsr_err *err)
{
	struct tsr_part_header header = { .data_nbytes = 0 };

	if (!p)
		return TSR_OK;
	if (p->joins)
		return p->file ? TSR_OK : check_read(p, err);
	if (p->file)
		return tsr_fail(err, TSR_PART_DONE, "%s: file %" PRIu64 " is done", p->request.path,
				p->file);
	header.number = p->request.number;
	header.count = p->request.count;
	header.data_nbytes = p->data_nbytes;
	header.words_nbytes = p->words.nbytes;
	tsr_part_report_end(&p->text, &header, p->met, p->nmet);
	if (p->text.failed)
		return tsr_fail_nomem(err, p->request.path);
	if (!p->request.in_memory)
		TSR_TRY(write_report(p, err));
	p->ended = true;
	return tsr_fail(err, TSR_PART_DONE, "%s: part %u of %u is done", p->request.path,
			p->request.number, p->request.count);
}

const struct tsr_text *tsr_part_text(const struct tsr_parts *p)
{
	return p->ended ? &p->text : NULL;
}

/* --- A part that was done before ----------------------------------------------------------------- */

static bool fits_request(const struct tsr_part_report *r, const struct tsr_part_request *request)
{
	TSR_SCOPED(tsr_text_free) struct tsr_text words = { 0 };

	put_words(request, &words);
	return !words.failed && r->header.number == request->number &&
	       r->header.count == request->count && r->header.words_nbytes == words.nbytes &&
	       memcmp(r->bytes, words.bytes, words.nbytes) == 0;
}

enum tsr_status tsr_part_is_done(const struct tsr_part_request *request, bool *ret,
				 struct tsr_err *err)
{
	TSR_SCOPED(tsr_part_report_free) struct tsr_part_report r = { 0 };
	TSR_OWNED(free) char *path = NULL;
	struct tsr_err damaged;

	TSR_TRY(tsr_part_report_path(request->path, request->number, request->count, &path, err));
	/* One that is damaged is made anew, and one whose bytes are not in the files of all parts. */
	*ret = tsr_dir_has(path) && tsr_part_report_take(path, NULL, 0, &r, &damaged) == TSR_OK &&
	       fits_request(&r, request) && tsr_part_report_wrote(&r, NULL, &damaged) == TSR_OK;
	return TSR_OK;
}

/* --- Files of all parts --------------------------------------------------------------------------- */

/* A part notes the path with its ranges, the joining process the path alone. */
static enum tsr_status add_met(struct tsr_parts *p, const char *path, struct tsr_err *err)
{
	TSR_TRY(TSR_GROW(&p->met, p->nmet, err, path));
	p->met[p->nmet] = (struct tsr_part_file){ .path = strdup(path) };
	if (!p->met[p->nmet].path)
		return tsr_fail_nomem(err, path);
	p->nmet++;
	return TSR_OK;
}

enum tsr_status tsr_part_meet(struct tsr_parts *p, const char *path, struct tsr_err *err)
{
	TSR_TRY(add_met(p, path, err));
	for (unsigned i = 0; p->joins && i < p->request.count; i++)
		TSR_TRY(tsr_part_report_wrote(&p->reports[i], path, err));
	return TSR_OK;
}

size_t tsr_part_nmet(const struct tsr_parts *p)
{
	return p ? p->nmet : 0;
}

void tsr_part_wrote(struct tsr_parts *p, size_t file, const void *bytes, size_t nbytes,
		    uint64_t offset)
{
	struct tsr_part_range range = { .offset = offset, .nbytes = nbytes };

	if (!tsr_part_is_one(p) || file >= p->nmet)
		return;
	range.hash = tsr_hash(bytes, nbytes, 0);
	tsr_text_put(&p->met[file].wrote, (const char *)&range, sizeof(range));
}

static enum tsr_status remove_report(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	const struct tsr_parts *p = ctx;

	(void)scratch, (void)err;
	(void)tsr_dir_remove_file(p->reports[job].name);
	return TSR_OK;
}

void tsr_part_remove(const struct tsr_parts *p, unsigned threads)
{
	/* To remove a file from tmpfs takes as long as to read it. */
	const struct tsr_pipeline reports = { .njobs = p->reports ? p->request.count : 0,
					      .work = remove_report,
					      .ctx = (void *)p };

	/* Reports last, since they are seen; one that is left does not fit a file that is made anew. */
	for (size_t i = 0; i < p->nmet; i++)
		(void)tsr_dir_remove_file(p->met[i].path);
	(void)tsr_pipeline_run(&reports, &(struct tsr_run){ .threads = threads }, NULL);
}

/* --- Both --------------------------------------------------------------------------------------- */

void tsr_part_free(struct tsr_parts *p)
{
	if (!p)
		return;
	for (unsigned i = 0; p->reports && i < p->request.count; i++)
		tsr_part_report_free(&p->reports[i]);
	for (size_t i = 0; i < p->nmet; i++) {
		free((char *)p->met[i].path);
		tsr_text_free(&p->met[i].wrote);
	}
	tsr_outfile_discard(p->out);
	tsr_file_close(p->read);
	free(p->reports);
	free(p->met);
	free(p->load);
	tsr_text_free(&p->text);
	tsr_text_free(&p->words);
	free(p);
}

const struct tsr_part_request *tsr_part_request(const struct tsr_parts *p)
{
	return &p->request;
}

bool tsr_part_joins(const struct tsr_parts *p)
{
	return p && p->joins;
}

bool tsr_part_is_one(const struct tsr_parts *p)
{
	return p && !p->joins;
}

enum tsr_status tsr_part_inputs(struct tsr_parts *p, const struct tsr_part_inputs *inputs,
				struct tsr_err *err)
{
	const unsigned n = p && p->joins ? p->request.count : 0;
	struct tsr_part_run run;

	if (p)
		p->inputs = *inputs;
	for (unsigned i = 0; i < n; i++) {
		TSR_TRY(tsr_part_report_run(&p->reports[i], &run, err));
		if (run.inputs.all != inputs->all ||
		    (run.inputs.times && inputs->times && run.inputs.times != inputs->times))
			return tsr_fail(err, TSR_E_FORMAT,
					"%s: the inputs have changed since: found %016" PRIx64
					" and %016" PRIx64 ", expected %016" PRIx64
					" and %016" PRIx64,
					p->reports[i].name, run.inputs.all, run.inputs.times,
					inputs->all, inputs->times);
	}
	return TSR_OK;
}

uint64_t tsr_part_id(const struct tsr_parts *p)
{
	return tsr_hash(&p->inputs.all, sizeof(p->inputs.all), p->command);
}

uint64_t tsr_part_file_id(const struct tsr_parts *p)
{
	return p->file ? tsr_hash(&p->file, sizeof(p->file), tsr_part_id(p)) : tsr_part_id(p);
}

struct tsr_part_share tsr_part_share(const struct tsr_parts *p)
{
	struct tsr_part_share share = { .nbytes = p->load[p->request.number - 1] };

	for (unsigned i = 0; i < p->request.count; i++)
		share.all_nbytes += p->load[i];
	return share;
}

enum tsr_status tsr_part_refuse(const struct tsr_run *run, const char *what, struct tsr_err *err)
{
	if (!run || !run->parts)
		return TSR_OK;
	return tsr_fail(err, TSR_E_UNSUPPORTED, "%s: is not done in parts", what);
}
