/* SPDX-License-Identifier: Apache-2.0 */
/* The command `audit`: what each codec would do to a checkpoint. */
#include "audit/audit_figures.h"
#include "audit/audit_work.h"
#include "base/fail.h"
#include "base/option_size.h"
#include "names/name_rules.h"

/* --- What to try -------------------------------------------------------------------------------- */

struct tsr_audit_options tsr_audit_defaults(void)
{
	return (struct tsr_audit_options){ .size = sizeof(struct tsr_audit_options),
					   .min_elements = TSR_MIN_ELEMENTS_DEFAULT };
}

static bool is_default(const struct tsr_codec *codec, enum tsr_kind kind, bool all)
{
	if (codec->lossless || !(codec->kinds & kind))
		return false;
	if (all || kind != TSR_KIND_WEIGHT)
		return all || !(codec->code_bits || codec->rank);
	return !codec->extra_bits || (codec->extra_bits == 8 && !codec->stochastic);
}

static void add(struct tsr_coding *ret, unsigned *n, const struct tsr_codec *codec,
		enum tsr_kind kind)
{
	if (*n == TSR_AUDIT_CODINGS_MAX)
		return;
	ret[*n] = tsr_coding_default(codec);
	ret[*n].kind = kind;
	++*n;
}

unsigned tsr_audit_codings(bool all, struct tsr_coding *ret)
{
	static const char *const others[] = { "gefen8", "blockmean", "lowrank16+linear8",
					      "lowrank32+linear8" };
	unsigned n = 0;

	for (unsigned kind = TSR_KIND_WEIGHT; kind <= TSR_KIND_VARIANCE; kind *= 2) {
		for (const struct tsr_codec *const *c = tsr_codecs(); *c; c++) {
			if (is_default(*c, (enum tsr_kind)kind, all))
				add(ret, &n, *c, (enum tsr_kind)kind);
		}
		for (unsigned i = 0; i < sizeof(others) / sizeof(*others); i++) {
			const struct tsr_codec *codec = tsr_codec_find(others[i]);

			if (is_default(codec, (enum tsr_kind)kind, all))
				add(ret, &n, codec, (enum tsr_kind)kind);
		}
	}
	return n;
}

/* --- Running ------------------------------------------------------------------------------------ */

/* A step of a replay is not judged: its moments are what the rule made. */
static enum tsr_status judge_moments(struct tsr_auditing *a, struct tsr_err *err)
{
	const struct tsr_moments_found f = tsr_audit_moments(&a->pub);

	return a->borrowed ? TSR_OK : tsr_moments_note(&f, a->c, false, err);
}

/* Of a borrowed checkpoint the one path is its name. */
static enum tsr_status open_input(struct tsr_auditing *a, const char *const *paths, unsigned npaths,
				  struct tsr_err *err)
{
	const struct tsr_audit_options *o = &a->options;

	if (!a->borrowed)
		TSR_TRY(tsr_checkpoint_open(paths, npaths, o->open, &a->c, err));
	a->pub.source = a->c;
	if (a->c->packed)
		return tsr_fail(err, TSR_E_UNSUPPORTED,
				"%s: is packed already: found what a codec left, expected the "
				"original",
				a->c->path);
	a->pub.name = tsr_arena_string(a->arena, a->borrowed ? paths[0] : a->c->path);
	if (!a->pub.name)
		return tsr_fail_nomem(err, a->c->path);
	if (a->borrowed)
		return TSR_OK;
	TSR_TRY(tsr_names_assign(a->c, o->rules, o->nrules, err));
	return tsr_name_rules_note(a->c, o->rules, o->nrules, err);
}

/* Of @open, whose name is the one path; or of files. */
static enum tsr_status audit(struct tsr_checkpoint *open, const char *const *paths, unsigned npaths,
			     const struct tsr_audit_options *options, const struct tsr_run *run,
			     struct tsr_audit **ret, struct tsr_err *err)
{
	struct tsr_coding codings[TSR_AUDIT_CODINGS_MAX];
	struct tsr_audit_options o = tsr_audit_defaults();
	struct tsr_auditing *a;
	enum tsr_status status;

	TSR_TRY(tsr_options_take(&o, options, err));
	if (!o.codings) {
		o.codings = codings;
		o.ncodings = tsr_audit_codings(false, codings);
	}
	if (o.ncodings == 0 || o.ncodings > TSR_AUDIT_CODINGS_MAX)
		return tsr_fail(err, TSR_E_USAGE, "audit: found %u codings, expected 1 to %u",
				o.ncodings, TSR_AUDIT_CODINGS_MAX);
	TSR_TRY(TSR_NEW(&a, 1, err, "audit"));
	a->options = o;
	a->borrowed = open != NULL;
	a->c = open;
	a->arena = tsr_arena_new(TSR_AUDIT_ARENA_MAX);
	status = a->arena ? open_input(a, paths, npaths, err) : tsr_fail_nomem(err, "audit");
	TSR_THEN(status, tsr_audit_plan(a, run, err));
	TSR_THEN(status, tsr_audit_measure(a, run, err));
	TSR_THEN(status, tsr_audit_sum_up(a, err));
	TSR_THEN(status, judge_moments(a, err));
	/* The caller's; they need not live longer than this call. */
	a->options = (struct tsr_audit_options){ .size = 0 };
	return TSR_MADE(status, ret, &a->pub, tsr_audit_free);
}

enum tsr_status tsr_audit_run(const char *const *paths, unsigned npaths,
			      const struct tsr_audit_options *options, const struct tsr_run *run,
			      struct tsr_audit **ret, struct tsr_err *err)
{
	return audit(NULL, paths, npaths, options, run, ret, err);
}

enum tsr_status tsr_audit_checkpoint(struct tsr_checkpoint *c, const char *name,
				     const struct tsr_audit_options *options,
				     const struct tsr_run *run, struct tsr_audit **ret,
				     struct tsr_err *err)
{
	return audit(c, &name, 1, options, run, ret, err);
}

void tsr_audit_free(struct tsr_audit *audit)
{
	struct tsr_auditing *a = (struct tsr_auditing *)audit;

	if (!a)
		return;
	if (!a->borrowed)
		tsr_checkpoint_close(a->c);
	tsr_learned_free(a->own);
	tsr_arena_free(a->arena);
	free(a);
}
