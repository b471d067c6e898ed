/* SPDX-License-Identifier: Apache-2.0 */
/* Parts that are to be joined: whether they are all parts of one command, each once, and about one output. */
#include "base/fail.h"
#include "parts/part_report.h"
#include "parts/part_state.h"

/* Report number @i, from 0 on, beside the first one. */
static enum tsr_status check_report(const struct tsr_parts *p, unsigned i, struct tsr_err *err)
{
	const struct tsr_part_report *r = &p->reports[i], *first = &p->reports[0];
	const unsigned n = p->request.count;

	if (r->header.count != first->header.count)
		return tsr_fail(err, TSR_E_FORMAT, "%s: found one of %u parts, expected one of %u",
				r->name, r->header.count, first->header.count);
	if (r->header.words_nbytes != first->header.words_nbytes ||
	    memcmp(r->bytes, first->bytes, (size_t)r->header.words_nbytes) != 0)
		return tsr_fail(err, TSR_E_FORMAT,
				"%s: found other inputs or options than in %s; all parts have the "
				"same command line but for their number",
				r->name, first->name);
	if (r->header.count != n || r->header.number != i + 1)
		return tsr_fail(err, TSR_E_FORMAT, "%s: found part %u of %u, expected %u of %u",
				r->name, r->header.number, r->header.count, i + 1, n);
	return TSR_OK;
}

static enum tsr_status check_reports(const char *path, struct tsr_parts *p, struct tsr_err *err)
{
	p->joins = true;
	tsr_text_put(&p->words, p->reports[0].bytes, (size_t)p->reports[0].header.words_nbytes);
	TSR_TRY(tsr_part_start(p, err));
	for (unsigned i = 0; i < p->request.count; i++)
		TSR_TRY(check_report(p, i, err));
	if (strcmp(p->request.path, path) != 0)
		return tsr_fail(err, TSR_E_FORMAT, "%s: is about %s, expected %s",
				p->reports[0].name, p->request.path, path);
	return TSR_OK;
}

/* Take the reports in memory. */
static enum tsr_status take_texts(struct tsr_parts *p, const char *path,
				  const struct tsr_text *texts, unsigned n, struct tsr_err *err)
{
	if (!n || n > TSR_PARTS_MAX)
		return tsr_fail_nomem(err, path);
	p->request.count = n;
	TSR_TRY(TSR_NEW(&p->reports, n, err, path));
	for (unsigned i = 0; i < n; i++) {
		TSR_OWNED(free) char *name = NULL;

		TSR_TRY(tsr_part_report_path(path, i + 1, n, &name, err));
		TSR_TRY(tsr_part_report_take(name, texts[i].bytes, texts[i].nbytes, &p->reports[i],
					     err));
	}
	return TSR_OK;
}

enum tsr_status tsr_part_join(const char *path, const struct tsr_text *texts, unsigned n,
			      struct tsr_parts **ret, struct tsr_err *err)
{
	TSR_OWNED(tsr_part_free) struct tsr_parts *p = NULL;

	TSR_TRY(TSR_NEW(&p, 1, err, path));
	TSR_TRY(texts ? take_texts(p, path, texts, n, err)
		      : tsr_part_reports_find(path, &p->reports, &p->request.count, err));
	TSR_TRY(check_reports(path, p, err));
	return TSR_GIVE(ret, p);
}
