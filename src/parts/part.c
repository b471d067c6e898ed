/* SPDX-License-Identifier: Apache-2.0 */
/* A command's work in parts: one of them, or all of them to be joined. */
#include "parts/part.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "io/dir.h"
#include "io/file.h"
#include "io/hash.h"
#include "parts/part_state.h"
#include "tersor/version.h"

/* --- Requests ----------------------------------------------------------------------------------- */

static enum tsr_status copy_request(struct tsr_part_request *to, const struct tsr_part_request *r,
				    struct tsr_err *err)
{
	const char **args = calloc(r->nargs + 1, sizeof(*args));
	bool copied;

	*to = *r;
	to->args = args;
	to->path = strdup(r->path);
	to->command = strdup(r->command);
	copied = args && to->path && to->command;
	for (size_t i = 0; args && i < r->nargs; i++) {
		args[i] = strdup(r->args[i]);
		copied = copied && args[i];
	}
	return copied ? TSR_OK : tsr_fail_nomem(err, r->path);
}

static void free_request(struct tsr_part_request *r)
{
	for (size_t i = 0; r->args && i < r->nargs; i++)
		free((char *)r->args[i]);
	free((void *)r->args);
	free((char *)r->path);
	free((char *)r->command);
}

/* The same for all parts of a command. */
static uint64_t hash_request(const struct tsr_part_request *r)
{
	uint64_t hash = tsr_hash(TSR_VERSION, sizeof(TSR_VERSION), r->count);

	hash = tsr_hash(r->command, strlen(r->command) + 1, hash);
	hash = tsr_hash(r->path, strlen(r->path) + 1, hash);
	for (size_t i = 0; i < r->nargs; i++)
		hash = tsr_hash(r->args[i], strlen(r->args[i]) + 1, hash);
	return hash;
}

static enum tsr_status start(const struct tsr_part_request *r, bool joins, struct tsr_parts **ret,
			     struct tsr_err *err)
{
	struct tsr_parts *p = calloc(1, sizeof(*p));
	enum tsr_status status;

	if (!p)
		return tsr_fail_nomem(err, r->path);
	status = copy_request(&p->request, r, err);
	if (status != TSR_OK) {
		tsr_part_free(p);
		return status;
	}
	p->joins = joins;
	p->options = hash_request(&p->request);
	*ret = p;
	return TSR_OK;
}

/* --- One part ----------------------------------------------------------------------------------- */

enum tsr_status tsr_part_new(const struct tsr_part_request *request, struct tsr_parts **ret,
			     struct tsr_err *err)
{
	struct tsr_parts *p = NULL;

	if (request->number < 1 || request->number > request->count ||
	    request->count > TSR_PARTS_MAX)
		return tsr_fail(err, TSR_E_USAGE,
				"%s: found part %u of %u, expected 1 of 1 to %u of %u",
				request->path, request->number, request->count, TSR_PARTS_MAX,
				TSR_PARTS_MAX);
	TSR_TRY(start(request, false, &p, err));
	p->load = calloc(request->count, sizeof(*p->load));
	if (!p->load) {
		tsr_part_free(p);
		return tsr_fail_nomem(err, request->path);
	}
	tsr_part_report_begin(&p->request, &p->text);
	*ret = p;
	return TSR_OK;
}

static enum tsr_status write_report(const struct tsr_parts *p, struct tsr_err *err)
{
	char *path = tsr_part_report_path(p->request.path, p->request.number, p->request.count);
	struct tsr_outfile *f = NULL;
	enum tsr_status status;

	if (!path)
		return tsr_fail_nomem(err, p->request.path);
	status = tsr_outfile_create(path, true, p->text.nbytes, &f, err);
	if (status == TSR_OK) {
		status = tsr_outfile_write(f, p->text.bytes, p->text.nbytes, 0, err);
		if (status == TSR_OK)
			status = tsr_outfile_publish(f, err);
		else
			tsr_outfile_discard(f);
	}
	free(path);
	return status;
}

/* --- Bytes without a place ---------------------------------------------------------------------- */

/* Of part @number, to be freed; NULL when out of memory. */
static char *data_path(const struct tsr_parts *p, unsigned number)
{
	char *ret;

	if (asprintf(&ret, "%s.part-%u-of-%u.data", p->request.path, number, p->request.count) < 0)
		return NULL;
	return ret;
}

static enum tsr_status create_data(struct tsr_parts *p, struct tsr_err *err)
{
	char *path = data_path(p, p->request.number);
	enum tsr_status status;

	p->hasher = tsr_hasher_new();
	if (!path || !p->hasher) {
		free(path);
		return tsr_fail_nomem(err, p->request.path);
	}
	status = tsr_outfile_create(path, true, 0, &p->data, err);
	free(path);
	return status;
}

enum tsr_status tsr_part_put(struct tsr_parts *p, const void *bytes, size_t nbytes,
			     struct tsr_err *err)
{
	if (!p->data)
		TSR_TRY(create_data(p, err));
	TSR_TRY(tsr_outfile_write(p->data, bytes, nbytes, p->data_nbytes, err));
	tsr_hasher_add(p->hasher, bytes, nbytes);
	p->data_nbytes += nbytes;
	return TSR_OK;
}

/* Open the data of the part whose jobs are joined, in place of another's: there may be many. */
static enum tsr_status open_data(struct tsr_parts *p, struct tsr_err *err)
{
	const struct tsr_part_data *data = &p->reports[p->joined - 1].data;
	char *path = data_path(p, p->joined);
	enum tsr_status status;

	tsr_file_close(p->read);
	p->read = NULL;
	p->reading = p->joined;
	if (!path)
		return tsr_fail_nomem(err, p->request.path);
	status = tsr_file_open(path, &p->read, err);
	if (status == TSR_OK && !p->readers[p->joined - 1].nbytes)
		status = tsr_part_note_file(p, path, err);
	if (status == TSR_OK && tsr_file_size(p->read) != data->nbytes)
		status = tsr_fail(err, TSR_E_FORMAT,
				  "%s: found %" PRIu64 " bytes, expected %" PRIu64, path,
				  tsr_file_size(p->read), data->nbytes);
	free(path);
	return status;
}

/* Of the part whose jobs are joined; NULL when out of memory. */
static struct tsr_part_reader *find_reader(struct tsr_parts *p)
{
	struct tsr_part_reader *r;

	if (!p->readers)
		p->readers = calloc(p->request.count, sizeof(*p->readers));
	if (!p->readers)
		return NULL;
	r = &p->readers[p->joined - 1];
	if (!r->hasher)
		r->hasher = tsr_hasher_new();
	return r->hasher ? r : NULL;
}

enum tsr_status tsr_part_get(struct tsr_parts *p, void *bytes, size_t nbytes, struct tsr_err *err)
{
	const struct tsr_part_data *data = &p->reports[p->joined - 1].data;
	struct tsr_part_reader *r = find_reader(p);

	if (!r)
		return tsr_fail_nomem(err, p->request.path);
	if (nbytes > data->nbytes - r->nbytes)
		return tsr_fail(err, TSR_E_FORMAT,
				"%s: found %" PRIu64 " bytes beside it, expected more",
				p->reports[p->joined - 1].name, data->nbytes);
	if (!p->read || p->reading != p->joined)
		TSR_TRY(open_data(p, err));
	TSR_TRY(tsr_file_read(p->read, bytes, nbytes, r->nbytes, err));
	tsr_hasher_add(r->hasher, bytes, nbytes);
	r->nbytes += nbytes;
	if (r->nbytes == data->nbytes && tsr_hasher_value(r->hasher) != data->hash)
		return tsr_fail(err, TSR_E_FORMAT, "%s: is damaged", tsr_file_path(p->read));
	return TSR_OK;
}

/* Whether all bytes beside the reports were of some piece: the hash of others is not checked. */
static enum tsr_status check_read(const struct tsr_parts *p, struct tsr_err *err)
{
	for (unsigned i = 0; i < p->request.count; i++) {
		const uint64_t found = p->readers ? p->readers[i].nbytes : 0;

		if (found != p->reports[i].data.nbytes)
			return tsr_fail(err, TSR_E_FORMAT,
					"%s: found %" PRIu64 " bytes of pieces, expected %" PRIu64
					" beside it",
					p->reports[i].name, found, p->reports[i].data.nbytes);
	}
	return TSR_OK;
}

static enum tsr_status publish_data(struct tsr_parts *p, struct tsr_err *err)
{
	struct tsr_outfile *data = p->data;

	p->data = NULL;
	return data ? tsr_outfile_publish(data, err) : TSR_OK;
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
	struct tsr_part_data data = { 0 };

	if (!p)
		return TSR_OK;
	if (p->joins)
		return p->file ? TSR_OK : check_read(p, err);
	if (p->file)
		return tsr_fail(err, TSR_PART_DONE, "%s: file %" PRIu64 " is done", p->request.path,
				p->file);
	data.nbytes = p->data_nbytes;
	data.hash = p->hasher ? tsr_hasher_value(p->hasher) : 0;
	tsr_part_report_end(&p->text, p->met, p->nmet, &data);
	if (p->text.failed)
		return tsr_fail_nomem(err, p->request.path);
	TSR_TRY(publish_data(p, err));
	if (!p->request.in_memory)
		TSR_TRY(write_report(p, err));
	p->ended = true;
	return tsr_fail(err, TSR_PART_DONE, "%s: part %u of %u is done", p->request.path,
			p->request.number, p->request.count);
}

bool tsr_part_has_ended(const struct tsr_parts *p)
{
	return p->ended;
}

const struct tsr_text *tsr_part_text(const struct tsr_parts *p)
{
	return p->ended ? &p->text : NULL;
}

/* --- Parts to be joined ------------------------------------------------------------------------- */

static enum tsr_status check_reports(const char *path, const struct tsr_part_report *reports,
				     unsigned n, struct tsr_err *err)
{
	for (unsigned i = 0; i < n; i++) {
		TSR_TRY(tsr_part_report_fits(&reports[i], &reports[0], err));
		if (reports[i].count != n || reports[i].number != i + 1)
			return tsr_fail(
				err, TSR_E_FORMAT, "%s: found part %u of %u, expected %u of %u",
				reports[i].name, reports[i].number, reports[i].count, i + 1, n);
	}
	if (strcmp(reports[0].path, path) != 0)
		return tsr_fail(err, TSR_E_FORMAT, "%s: is about %s, expected %s", reports[0].name,
				reports[0].path, path);
	return TSR_OK;
}

/* Takes over the reports, also on failure. */
static enum tsr_status join(const char *path, struct tsr_part_report *reports, unsigned n,
			    struct tsr_parts **ret, struct tsr_err *err)
{
	struct tsr_part_request request = { .count = n, .path = path };
	enum tsr_status status = check_reports(path, reports, n, err);
	const char **args = NULL;
	struct tsr_parts *p = NULL;

	if (status == TSR_OK) {
		for (const struct tsr_json *v = tsr_json_first(reports[0].args); v;
		     v = tsr_json_next(v))
			request.nargs++;
		args = calloc(request.nargs + 1, sizeof(*args));
		status = args ? TSR_OK : tsr_fail_nomem(err, path);
	}
	if (status == TSR_OK) {
		size_t i = 0;

		for (const struct tsr_json *v = tsr_json_first(reports[0].args); v;
		     v = tsr_json_next(v))
			args[i++] = tsr_json_string(v);
		request.args = args;
		request.command = reports[0].command;
		status = start(&request, true, &p, err);
	}
	free(args);
	if (status != TSR_OK) {
		for (unsigned i = 0; i < n; i++)
			tsr_part_report_free(&reports[i]);
		free(reports);
		return status;
	}
	p->reports = reports;
	*ret = p;
	return TSR_OK;
}

enum tsr_status tsr_part_join(const char *path, struct tsr_parts **ret, struct tsr_err *err)
{
	struct tsr_part_report *reports = NULL;
	unsigned n = 0;

	TSR_TRY(tsr_part_reports_find(path, &reports, &n, err));
	return join(path, reports, n, ret, err);
}

enum tsr_status tsr_part_join_texts(const char *path, const struct tsr_text *texts, size_t n,
				    struct tsr_parts **ret, struct tsr_err *err)
{
	struct tsr_part_report *reports = n && n <= TSR_PARTS_MAX ? calloc(n, sizeof(*reports))
								  : NULL;
	enum tsr_status status = TSR_OK;

	if (!reports)
		return tsr_fail_nomem(err, path);
	for (size_t i = 0; i < n && status == TSR_OK; i++) {
		char *name = tsr_part_report_path(path, (unsigned)i + 1, (unsigned)n);

		status = name ? tsr_part_report_parse(name, texts[i].bytes, texts[i].nbytes,
						      &reports[i], err)
			      : tsr_fail_nomem(err, path);
		free(name);
	}
	if (status == TSR_OK)
		return join(path, reports, (unsigned)n, ret, err);
	for (size_t i = 0; i < n; i++)
		tsr_part_report_free(&reports[i]);
	free(reports);
	return status;
}

enum tsr_status tsr_part_note_file(struct tsr_parts *p, const char *path, struct tsr_err *err)
{
	char **files = realloc(p->files, (p->nfiles + 1) * sizeof(*files));

	if (!files)
		return tsr_fail_nomem(err, path);
	p->files = files;
	files[p->nfiles] = strdup(path);
	if (!files[p->nfiles])
		return tsr_fail_nomem(err, path);
	p->nfiles++;
	return TSR_OK;
}

/* The file that was noted last. */
static enum tsr_status add_met(struct tsr_parts *p, uint64_t nbytes, uint64_t mark,
			       struct tsr_err *err)
{
	const char *path = p->files[p->nfiles - 1];
	struct tsr_part_file *met = realloc(p->met, (p->nmet + 1) * sizeof(*met));

	if (!met)
		return tsr_fail_nomem(err, path);
	p->met = met;
	met[p->nmet++] = (struct tsr_part_file){ path, nbytes, mark, { 0 } };
	return TSR_OK;
}

size_t tsr_part_nmet(const struct tsr_parts *p)
{
	return p ? p->nmet : 0;
}

void tsr_part_wrote(struct tsr_parts *p, size_t file, const void *bytes, size_t nbytes,
		    uint64_t offset)
{
	struct tsr_text *wrote;

	if (!tsr_part_is_one(p) || file >= p->nmet)
		return;
	wrote = &p->met[file].wrote;
	tsr_text_printf(wrote, "%s%" PRIx64 " %zx %" PRIx64, wrote->nbytes ? " " : "", offset,
			nbytes, tsr_hash(bytes, nbytes, 0));
}

enum tsr_status tsr_part_meet(struct tsr_parts *p, const char *path, uint64_t nbytes, uint64_t mark,
			      struct tsr_err *err)
{
	TSR_TRY(tsr_part_note_file(p, path, err));
	for (unsigned i = 0; p->joins && mark && i < p->request.count; i++)
		TSR_TRY(tsr_part_report_wrote(&p->reports[i], path, mark, err));
	return p->joins ? TSR_OK : add_met(p, nbytes, mark, err);
}

void tsr_part_remove(const struct tsr_parts *p)
{
	/* Reports last, since they are seen; one that is left does not fit a file that is made anew. */
	for (size_t i = 0; i < p->nfiles; i++)
		(void)tsr_dir_remove_file(p->files[i]);
	for (unsigned i = 0; p->reports && i < p->request.count; i++)
		(void)tsr_dir_remove_file(p->reports[i].name);
}

/* --- Both --------------------------------------------------------------------------------------- */

void tsr_part_free(struct tsr_parts *p)
{
	if (!p)
		return;
	for (unsigned i = 0; p->reports && i < p->request.count; i++)
		tsr_part_report_free(&p->reports[i]);
	for (unsigned i = 0; p->readers && i < p->request.count; i++)
		tsr_hasher_free(p->readers[i].hasher);
	for (size_t i = 0; i < p->nfiles; i++)
		free(p->files[i]);
	for (size_t i = 0; i < p->nmet; i++)
		tsr_text_free(&p->met[i].wrote);
	free(p->readers);
	tsr_outfile_discard(p->data);
	tsr_hasher_free(p->hasher);
	tsr_file_close(p->read);
	free(p->files);
	free(p->met);
	free(p->reports);
	free(p->load);
	tsr_text_free(&p->text);
	free_request(&p->request);
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
	return tsr_hash(&p->inputs.all, sizeof(p->inputs.all), p->options);
}

uint64_t tsr_part_file_id(const struct tsr_parts *p)
{
	return p->file ? tsr_hash(&p->file, sizeof(p->file), tsr_part_id(p)) : tsr_part_id(p);
}

struct tsr_part_share tsr_part_share(const struct tsr_parts *p)
{
	return p->share;
}

enum tsr_status tsr_part_refuse(const struct tsr_run *run, const char *what, struct tsr_err *err)
{
	if (!run || !run->parts)
		return TSR_OK;
	return tsr_fail(err, TSR_E_UNSUPPORTED, "%s: is not done in parts", what);
}
