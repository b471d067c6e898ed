/* SPDX-License-Identifier: Apache-2.0 */
/* What inspect says of a recording, for people and for machines. */
#include "cli/recording_report.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "recording/recording_summary.h"
#include "text/json.h"
#include "cli/output.h"
#include "report/render/format.h"

static void warn_extra(const struct cli_common *common, const struct tsr_recording_summary *t)
{
	const char *first = NULL;
	size_t n = 0;

	for (size_t i = 0; i < t->ngradients; i++) {
		if (t->gradients[i].group)
			continue;
		first = first ? first : t->gradients[i].name;
		n++;
	}
	if (n)
		cli_warn(common, "%s: tensor %.200s: is in no group of the manifest (%zu such)",
			 t->recording->path, first, n);
}

/* --- For people ------------------------------------------------------------------------------- */

static void print_dtypes(unsigned dtypes)
{
	const char *before = "";

	for (unsigned i = 0; i < TSR_DTYPE_COUNT; i++) {
		if (!(dtypes >> i & 1))
			continue;
		printf("%s%s", before, tsr_dtype_name((enum tsr_dtype)i));
		before = ", ";
	}
}

static void print_range(const struct tsr_recorded_range *r)
{
	if (r->n == 0)
		printf("not recorded");
	else if (r->low == r->high)
		printf("%.6g", r->low);
	else
		printf("%.6g to %.6g", r->low, r->high);
}

static void print_group(const struct tsr_recording_summary *t, size_t group)
{
	const struct tsr_hyper *h = &t->recording->groups[group].hyper;
	const struct tsr_recorded_group *g = &t->groups[group];
	const char *before = "\n         ";

	printf("group %-2zu %" PRIu64 " parameter%s, %s elements, lr ", group, g->nparams,
	       g->nparams == 1 ? "" : "s", tsr_format_count(g->numel).text);
	print_range(&g->lr);
	for (unsigned i = 0; i < TSR_HYPER_COUNT; i++) {
		if (!tsr_hyper_is_set(h, (enum tsr_hyper_name)i))
			continue;
		printf("%s%s %.9g", before, tsr_hyper_name((enum tsr_hyper_name)i), h->value[i]);
		before = ", ";
	}
	printf("\n");
}

static void print_steps(const struct tsr_recording_summary *t)
{
	printf("\n%9s %7s %8s %11s %11s  %s\n", "step", "tensors", "bytes", "lr", "loss", "file");
	for (size_t i = 0; i < t->recording->nsteps; i++) {
		const struct tsr_recording_step *s = &t->recording->steps[i];
		char lr[24] = "-", loss[24] = "-";

		if (s->lr)
			snprintf(lr, sizeof(lr), "%.6g", s->lr[0]);
		if (s->has_loss)
			snprintf(loss, sizeof(loss), "%.6g", s->loss);
		printf("%9" PRIu64 " %7" PRIu64 " %8s %11s %11s  %s", s->step, t->steps[i].ntensors,
		       tsr_format_bytes((double)t->steps[i].nbytes).text, lr, loss,
		       tsr_format_name(s->files[0], 27).text);
		if (s->nfiles > 1)
			printf(" +%zu", s->nfiles - 1);
		printf("\n");
	}
}

static void print_report(const struct cli_common *common, const struct tsr_recording_summary *t)
{
	const struct tsr_recording *r = t->recording;

	printf("%s: recording, %s\n\n", tsr_format_name(r->path, 50).text,
	       r->optimizer == TSR_OPTIMIZER_COUNT ? "optimizer not recorded"
						   : tsr_optimizer_name(r->optimizer));
	printf("steps    %" PRIu64 " to %" PRIu64 " (%zu), %" PRIu64 " file%s, %s\n",
	       r->steps->step, r->steps[r->nsteps - 1].step, r->nsteps, t->nfiles,
	       t->nfiles == 1 ? "" : "s", tsr_format_bytes((double)t->nbytes).text);
	printf("loss     ");
	print_range(&t->loss);
	printf("\ntensors  %zu, ", t->ngradients);
	print_dtypes(t->dtypes);
	if (t->nmissing)
		printf(", %" PRIu64 " gradient%s missing", t->nmissing,
		       t->nmissing == 1 ? "" : "s");
	printf("\n");
	for (size_t g = 0; g < r->ngroups; g++)
		print_group(t, g);
	if (common->verbose)
		print_steps(t);
}

/* --- For machines ----------------------------------------------------------------------------- */

static void range_json(struct tsr_text *json, const char *key, const struct tsr_recorded_range *r)
{
	if (!r->n) {
		tsr_json_put_null(json, key);
		return;
	}
	tsr_json_put_doubles(json, key, (const double[]){ r->low, r->high }, 2);
}

static void group_json(struct tsr_text *json, const struct tsr_recording_summary *t, size_t group)
{
	const struct tsr_recorded_group *g = &t->groups[group];
	const struct tsr_hyper *h = &t->recording->groups[group].hyper;

	tsr_json_open(json, NULL, '{');
	tsr_json_put_u64(json, "parameters", g->nparams);
	tsr_json_put_u64(json, "elements", g->numel);
	tsr_json_open(json, "hyperparameters", '{');
	for (unsigned i = 0; i < TSR_HYPER_COUNT; i++) {
		if (tsr_hyper_is_set(h, (enum tsr_hyper_name)i))
			tsr_json_put_double(json, tsr_hyper_name((enum tsr_hyper_name)i),
					    h->value[i]);
	}
	tsr_json_close(json, '}');
	range_json(json, "lr", &g->lr);
	tsr_json_close(json, '}');
}

static void dtypes_json(struct tsr_text *json, unsigned dtypes)
{
	tsr_json_open(json, "dtypes", '[');
	for (unsigned i = 0; i < TSR_DTYPE_COUNT; i++) {
		if (dtypes >> i & 1)
			tsr_json_put_string(json, NULL, tsr_dtype_name((enum tsr_dtype)i));
	}
	tsr_json_close(json, ']');
}

static void step_json(struct tsr_text *json, const struct tsr_recording_summary *t, size_t index)
{
	const struct tsr_recording_step *s = &t->recording->steps[index];

	tsr_json_open(json, NULL, '{');
	tsr_json_put_u64(json, "step", s->step);
	tsr_json_put_strings(json, "files", s->files, s->nfiles);
	tsr_json_put_u64(json, "tensors", t->steps[index].ntensors);
	tsr_json_put_u64(json, "nbytes", t->steps[index].nbytes);
	dtypes_json(json, t->steps[index].dtypes);
	if (s->lr)
		tsr_json_put_doubles(json, "lr", s->lr, t->recording->ngroups);
	else
		tsr_json_put_null(json, "lr");
	tsr_json_put_double(json, "loss", s->has_loss ? s->loss : NAN);
	tsr_json_close(json, '}');
}

static void gradient_json(struct tsr_text *json, const struct tsr_recording_summary *t,
			  const struct tsr_recorded_gradient *g)
{
	tsr_json_open(json, NULL, '{');
	tsr_json_put_string(json, "name", g->name);
	if (g->group)
		tsr_json_put_u64(json, "param_group", (uint64_t)(g->group - t->recording->groups));
	else
		tsr_json_put_null(json, "param_group");
	tsr_json_put_string(json, "dtype", tsr_dtype_name(g->dtype));
	tsr_json_put_u64s(json, "shape", g->shape, g->rank);
	tsr_json_put_u64(json, "steps", g->nsteps);
	tsr_json_close(json, '}');
}

static int report_json(const struct cli_cmd *cmd, const struct cli_common *common,
		       const struct tsr_recording_summary *t)
{
	const struct tsr_recording *r = t->recording;
	struct tsr_text json = { 0 };

	cli_json_begin(&json, cmd);
	tsr_json_put_string(&json, "file", r->path);
	tsr_json_put_string(&json, "kind", "recording");
	tsr_json_put_string(&json, "optimizer",
			    r->optimizer == TSR_OPTIMIZER_COUNT ? NULL
								: tsr_optimizer_name(r->optimizer));
	tsr_json_open(&json, "totals", '{');
	tsr_json_put_u64(&json, "steps", r->nsteps);
	tsr_json_put_u64(&json, "first_step", r->steps->step);
	tsr_json_put_u64(&json, "last_step", r->steps[r->nsteps - 1].step);
	tsr_json_put_u64(&json, "files", t->nfiles);
	tsr_json_put_u64(&json, "tensors", t->ngradients);
	tsr_json_put_u64(&json, "missing", t->nmissing);
	tsr_json_put_u64(&json, "nbytes", t->nbytes);
	dtypes_json(&json, t->dtypes);
	range_json(&json, "loss", &t->loss);
	tsr_json_close(&json, '}');
	tsr_json_open(&json, "param_groups", '[');
	for (size_t g = 0; g < r->ngroups; g++)
		group_json(&json, t, g);
	tsr_json_close(&json, ']');
	tsr_json_open(&json, "steps", '[');
	for (size_t i = 0; i < r->nsteps; i++)
		step_json(&json, t, i);
	tsr_json_close(&json, ']');
	tsr_json_open(&json, "tensors", '[');
	for (size_t i = 0; i < t->ngradients; i++)
		gradient_json(&json, t, &t->gradients[i]);
	tsr_json_close(&json, ']');
	return cli_json_end(&json, common);
}

int cli_inspect_recording(const struct cli_cmd *cmd, const struct cli_common *common,
			  const char *path, const struct tsr_open_options *options)
{
	struct tsr_recording_summary *t = NULL;
	struct tsr_recording *r = NULL;
	struct tsr_err err;
	int status = CLI_OK;

	if (tsr_recording_open(path, options, &r, &err) != TSR_OK)
		return cli_error(&err);
	if (tsr_recording_summarize(r, &t, &err) != TSR_OK) {
		status = cli_error(&err);
	} else {
		warn_extra(common, t);
		if (cli_wants_text(common))
			print_report(common, t);
		if (common->json.given)
			status = report_json(cmd, common, t);
	}
	tsr_recording_summary_free(t);
	tsr_recording_close(r);
	return status;
}
