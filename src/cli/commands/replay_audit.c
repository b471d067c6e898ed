/* SPDX-License-Identifier: Apache-2.0 */
/* tersor replay --audit: what each codec would do to the state after every step in FP32. */
#include "cli/operations.h"

#include "base/grow.h"
#include "cli/files.h"
#include "report/reports.h"

/* An audit per step that was not skipped. */
struct audited {
	const struct tsr_run *run;
	struct tsr_audit **audits;
	uint64_t *steps;
	size_t n;
	struct tsr_coding codings[TSR_AUDIT_CODINGS_MAX];
	unsigned ncodings;
};

/* What all groups of parameters have; 0 if they differ or have none. */
static double common_value(const struct tsr_hyper *hyper, size_t n, enum tsr_hyper_name name)
{
	for (size_t i = 0; i < n; i++) {
		if (!tsr_hyper_is_set(&hyper[i], name) ||
		    hyper[i].value[name] != hyper[0].value[name])
			return 0;
	}
	return n ? hyper[0].value[name] : 0;
}

/* Progress and threads are the replay's: it waits meanwhile. */
static enum tsr_status audit_step(void *ctx, struct tsr_checkpoint *state, uint64_t step,
				  const struct tsr_hyper *hyper, size_t ngroups,
				  struct tsr_err *err)
{
	struct audited *a = ctx;
	struct tsr_audit_options o = tsr_audit_defaults();
	const struct tsr_run run = { .threads = a->run->threads };
	char name[32];

	snprintf(name, sizeof(name), "step %" PRIu64, step);
	TSR_TRY(TSR_GROW(&a->audits, a->n, err, name));
	TSR_TRY(TSR_GROW(&a->steps, a->n, err, name));
	o.codings = a->codings;
	o.ncodings = a->ncodings;
	o.eps = (float)common_value(hyper, ngroups, TSR_HYPER_EPS);
	o.beta1 = common_value(hyper, ngroups, TSR_HYPER_BETA1);
	o.beta2 = common_value(hyper, ngroups, TSR_HYPER_BETA2);
	o.kinds = TSR_KIND_MOMENTUM | TSR_KIND_VARIANCE;
	a->steps[a->n] = step;
	if (tsr_audit_checkpoint(state, name, &o, &run, &a->audits[a->n], err) != TSR_OK)
		return err->code;
	a->n++;
	return TSR_OK;
}

static int report(const struct cli_cmd *cmd, const struct cli_common *common,
		  const struct audited *a)
{
	struct tsr_report r = cli_report(cmd, common, "audit");

	tsr_text_printf(&r.text, "after %s:\n", a->audits[a->n - 1]->name);
	tsr_audit_report(a->audits, a->n, TSR_AUDIT_LAST, &r);
	if (r.wants_json) {
		tsr_json_put_u64s(&r.json, "steps", a->steps, a->n);
		tsr_audit_put_json(a->audits, a->n, &r.json);
	}
	return cli_end_report(&r, common);
}

int cli_replay_audit(const struct cli_cmd *cmd, const struct cli_replay_args *args,
		     struct tsr_replay_options *o)
{
	const struct cli_list *in = &args->common.operands;
	struct audited a = { .n = 0 };
	struct tsr_replay *r = NULL;
	struct cli_work work;
	unsigned n;
	int status;

	n = tsr_audit_codings(false, a.codings);
	/* Those of states; a codebook would have to be learned anew at each step. */
	for (unsigned i = 0; i < n; i++) {
		if (a.codings[i].kind != TSR_KIND_WEIGHT && !a.codings[i].codec->learned)
			a.codings[a.ncodings++] = a.codings[i];
	}
	o->each_step = audit_step;
	o->ctx = &a;
	o->ngpus = TSR_REPLAY_CPU;
	o->compare = false;
	cli_work_start(&work, &args->common, "replaying");
	a.run = &work.run;
	if (cli_work_end(&work, tsr_replay(in->items, in->n - 1, in->items[in->n - 1], NULL, o,
					   &work.run, &r, &work.err)) != TSR_OK)
		status = cli_error(&work.err);
	else if (!a.n)
		status = cli_fail(CLI_INPUT, "%s: no step was taken", in->items[in->n - 1]);
	else
		status = report(cmd, &args->common, &a);
	if (r)
		cli_warn_notes(&args->common, tsr_replay_source(r));
	for (size_t i = 0; i < a.n; i++)
		tsr_audit_free(a.audits[i]);
	free(a.audits);
	free(a.steps);
	tsr_replay_free(r);
	return status;
}
