/* SPDX-License-Identifier: Apache-2.0 */
/* What a user should know about the expressions that settle kinds: no match, or a glob. */
#include "names/name_rules.h"

#include <fnmatch.h>

#include "base/fail.h"
#include "text/text.h"

/* A glob in the terms of an expression: '^.*\.bias$' for "*.bias". */
static void put_glob(struct tsr_text *out, const char *glob)
{
	tsr_text_puts(out, "^");
	for (; *glob; glob++) {
		if (*glob == '*')
			tsr_text_puts(out, ".*");
		else if (*glob == '?')
			tsr_text_puts(out, ".");
		else
			tsr_text_printf(out, "%s%c", strchr(".+(){}|^$\\", *glob) ? "\\" : "",
					*glob);
	}
	tsr_text_puts(out, "$");
}

/* "*.bias", "h.*.bias": hardly anything that is meant as an expression. */
static bool looks_like_glob(const char *regex)
{
	return !strchr(regex, '\\') && (strncmp(regex, "*", 1) == 0 || strstr(regex, ".*."));
}

enum tsr_status tsr_name_rule_fail(const char *regex, const char *reason, struct tsr_err *err)
{
	TSR_SCOPED(tsr_text_free) struct tsr_text text = { 0 };

	if (looks_like_glob(regex))
		put_glob(&text, regex);
	if (!text.nbytes)
		return tsr_fail(err, TSR_E_USAGE, "regular expression '%.200s': %s", regex, reason);
	return tsr_fail(err, TSR_E_USAGE,
			"regular expression '%.200s': %s; the glob of that form is the "
			"expression '%.400s'",
			regex, reason, text.bytes);
}

enum tsr_status tsr_name_rule_note(struct tsr_checkpoint *c, const char *regex, size_t nmatches,
				   struct tsr_err *err)
{
	TSR_SCOPED(tsr_text_free) struct tsr_text text = { 0 };
	size_t n = 0;

	if (!nmatches || !looks_like_glob(regex))
		return TSR_OK;
	for (size_t i = 0; i < c->ntensors; i++)
		n += fnmatch(regex, c->tensors[i].name, 0) == 0;
	if (n == nmatches || !n)
		return TSR_OK;
	put_glob(&text, regex);
	if (text.failed)
		return tsr_fail_nomem(err, c->path);
	return tsr_build_note(c, err,
			      "regular expression '%.200s' matches %zu tensors of %.200s; the glob "
			      "of that form would match %zu and is the expression '%.400s'",
			      regex, nmatches, c->path, n, text.bytes);
}

enum tsr_status tsr_name_rules_strict(const struct tsr_name_rule *rules, unsigned nrules,
				      const bool *matched, const char *path, struct tsr_err *err)
{
	for (unsigned i = 0; i < nrules; i++) {
		if (!matched[i])
			return tsr_fail_hint(err, TSR_E_USAGE, TSR_HINT_STRICT,
					     "regular expression '%.200s': matches no tensor of %s",
					     rules[i].regex, path);
	}
	return TSR_OK;
}

enum tsr_status tsr_name_rules_note(struct tsr_checkpoint *c, const struct tsr_name_rule *rules,
				    unsigned nrules, struct tsr_err *err)
{
	for (unsigned i = 0; c->rules_matched && i < nrules; i++) {
		if (!c->rules_matched[i])
			TSR_TRY(tsr_build_note(c, err,
					       "regular expression '%.200s' matches no tensor of "
					       "%.200s",
					       rules[i].regex, c->path));
	}
	return TSR_OK;
}
