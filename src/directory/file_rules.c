/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of a user for a whole directory, divided among its files. */
#include "directory/file_rules.h"

#include <regex.h>

#include "base/fail.h"

static bool matches(const struct tsr_checkpoint *c, const char *expression)
{
	const struct tsr_tensor *t;
	bool found = false;
	regex_t regex;

	if (regcomp(&regex, expression, REG_EXTENDED | REG_NOSUB) != 0)
		return true;
	for (size_t i = 0; !found && (t = tsr_checkpoint_tensor(c, i)); i++)
		found = regexec(&regex, t->name, 0, NULL, 0) == 0;
	regfree(&regex);
	return found;
}

enum tsr_status tsr_file_rules_choose(struct tsr_directory *d,
				      const struct tsr_pack_options *options, const char *path,
				      bool *matched, struct tsr_file_rules *ret,
				      struct tsr_err *err)
{
	struct tsr_checkpoint *c = NULL;
	struct tsr_name_rule *rules;

	*ret = (struct tsr_file_rules){ options->rules, options->nrules };
	if (!options->nrules || tsr_checkpoint_open(&path, 1, options->open, &c, NULL) != TSR_OK)
		return TSR_OK;
	rules = tsr_arena_alloc(d->arena, options->nrules * sizeof(*rules));
	*ret = (struct tsr_file_rules){ rules, 0 };
	for (unsigned i = 0; rules && i < options->nrules; i++) {
		if (!matches(c, options->rules[i].regex))
			continue;
		matched[i] = true;
		rules[ret->n++] = options->rules[i];
	}
	tsr_checkpoint_close(c);
	return rules ? TSR_OK : tsr_directory_nomem(d, err);
}

enum tsr_status tsr_file_rules_check(struct tsr_directory *d,
				     const struct tsr_pack_options *options, const bool *matched,
				     struct tsr_err *err)
{
	for (unsigned i = 0; i < options->nrules && !d->remark; i++) {
		if (matched[i])
			continue;
		if (options->strict)
			return tsr_fail_hint(err, TSR_E_USAGE, TSR_HINT_STRICT,
					     "regular expression '%.200s': matches no tensor of %s",
					     options->rules[i].regex, d->path);
		d->remark = tsr_directory_text(
			d, "regular expression '%.200s' matches no tensor of %.600s",
			options->rules[i].regex, d->path);
		if (!d->remark)
			return tsr_directory_nomem(d, err);
	}
	return TSR_OK;
}
