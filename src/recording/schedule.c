/* SPDX-License-Identifier: Apache-2.0 */
/* Learning rates from a text file. */
#include <locale.h>
#include <math.h>

#include "base/fail.h"
#include "io/file.h"
#include "recording/schedule.h"
#include "text/bytes.h"

/* The longest file. */
#define SCHEDULE_NBYTES_MAX (UINT64_C(64) << 20)

/* Characters between words of a line. */
#define SPACES " \t\r,"

struct reading {
	const char *path;
	uint64_t line; /* from 1 */
	uint64_t first;
	size_t nsteps, ngroups;
	double *lr; /* NaN: no line yet */
	locale_t c; /* in which numbers have a point */
	struct tsr_err *err;
};

static void free_reading(struct reading *r)
{
	free(r->lr);
	if (r->c)
		freelocale(r->c);
}

static enum tsr_status wrong(const struct reading *r, const char *found, const char *expected)
{
	return tsr_fail(r->err, TSR_E_FORMAT, "%s: line %" PRIu64 ": found \"%.60s\", expected %s",
			r->path, r->line, found, expected);
}

/* The next word of a line, NUL-terminated in place; NULL at the end of the line. */
static char *next_word(char **at)
{
	char *word = *at + strspn(*at, SPACES);

	if (!*word)
		return NULL;
	*at = word + strcspn(word, SPACES);
	if (**at)
		*(*at)++ = '\0';
	return word;
}

/* Read what follows the number of a step into @lr, unless NULL: one learning rate, or one per group. */
static enum tsr_status read_rates(const struct reading *r, char *at, double *lr)
{
	double value = 0;
	size_t n = 0;
	char *word;
	char *end;

	for (; (word = next_word(&at)); n++) {
		/* strtod() also takes hexadecimal numbers and names of infinity. */
		if (word[strspn(word, "0123456789+-.eE")])
			return wrong(r, word, "a learning rate");
		value = strtod_l(word, &end, r->c);
		if (end == word || *end || !isfinite(value) || value < 0)
			return wrong(r, word, "a learning rate that is finite and not negative");
		if (lr && n < r->ngroups)
			lr[n] = value;
	}
	if (n != 1 && n != r->ngroups)
		return tsr_fail(
			r->err, TSR_E_FORMAT,
			"%s: line %" PRIu64
			": found a list of %zu, expected 1 learning rate or %zu: one per group",
			r->path, r->line, n, r->ngroups);
	if (lr && n == 1) {
		for (size_t g = 1; g < r->ngroups; g++)
			lr[g] = value;
	}
	return TSR_OK;
}

static enum tsr_status read_line(const struct reading *r, char *line)
{
	char *comment = strchr(line, '#'), *word;
	uint64_t step = 0;
	double *lr = NULL;

	if (comment)
		*comment = '\0';
	word = next_word(&line);
	if (!word)
		return TSR_OK;
	if (word[strspn(word, "0123456789")])
		return wrong(r, word, "the number of a step");
	if (!tsr_digits(word, strlen(word), UINT64_MAX, &step) || !step)
		return wrong(r, word, "the number of a step, from 1 on");
	if (step >= r->first && step - r->first < r->nsteps) {
		lr = r->lr + (step - r->first) * r->ngroups;
		if (!isnan(*lr))
			return tsr_fail(r->err, TSR_E_FORMAT,
					"%s: line %" PRIu64 ": found step %" PRIu64
					" again, expected it once",
					r->path, r->line, step);
	}
	return read_rates(r, line, lr);
}

static enum tsr_status read_lines(struct reading *r, char *text)
{
	char *next;

	for (char *line = text; line; line = next) {
		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		r->line++;
		TSR_TRY(read_line(r, line));
	}
	for (size_t i = 0; i < r->nsteps; i++) {
		if (isnan(r->lr[i * r->ngroups]))
			return tsr_fail(r->err, TSR_E_FORMAT,
					"%s: step %" PRIu64
					": found no line, expected a learning rate for "
					"every step from %" PRIu64 " to %" PRIu64,
					r->path, r->first + i, r->first, r->first + r->nsteps - 1);
	}
	return TSR_OK;
}

/* Read the whole file as text, to be freed. */
static enum tsr_status read_text(const char *path, char **ret, struct tsr_err *err)
{
	TSR_OWNED(tsr_file_close) struct tsr_file *f = NULL;

	TSR_TRY(tsr_file_open(path, &f, err));
	TSR_TRY(tsr_file_load(f, SCHEDULE_NBYTES_MAX, "schedule", ret, err));
	if (strlen(*ret) != tsr_file_size(f))
		return tsr_fail(err, TSR_E_FORMAT, "%s: found a NUL byte, expected text", path);
	return TSR_OK;
}

enum tsr_status tsr_schedule_load(const char *path, uint64_t first, size_t nsteps, size_t ngroups,
				  double **lr_ret, struct tsr_err *err)
{
	TSR_SCOPED(free_reading)
	struct reading r = {
		.path = path, .first = first, .nsteps = nsteps, .ngroups = ngroups, .err = err
	};
	TSR_OWNED(free) char *text = NULL;
	size_t n;

	if (__builtin_mul_overflow(nsteps, ngroups, &n))
		return tsr_fail_nomem(err, path);
	TSR_TRY(read_text(path, &text, err));
	TSR_TRY(TSR_NEW(&r.lr, n + 1, err, path));
	r.c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
	if (!r.c)
		return tsr_fail_nomem(err, path);
	for (size_t i = 0; i < n; i++)
		r.lr[i] = NAN;
	TSR_TRY(read_lines(&r, text));
	return TSR_GIVE(lr_ret, r.lr);
}
