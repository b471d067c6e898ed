/* SPDX-License-Identifier: Apache-2.0 */
/* What inspect says of a recording, for people and for machines. */
#include "report/checkpoints/checkpoint_reports.h"

#include "report/reports.h"

/* "0.001 to 0.01" */
static struct tsr_cell format_range(const struct tsr_recorded_range *r)
{
	struct tsr_cell cell = { "not recorded" };

	if (r->n && r->low == r->high)
		snprintf(cell.text, sizeof(cell.text), "%.6g", r->low);
	else if (r->n)
		snprintf(cell.text, sizeof(cell.text), "%.6g to %.6g", r->low, r->high);
	return cell;
}

static void put_range(struct tsr_text *json, const char *key, const struct tsr_recorded_range *r)
{
	if (r->n)
		tsr_json_put_doubles(json, key, (const double[]){ r->low, r->high }, 2);
	else
		tsr_json_put_null(json, key);
}

/* The names of the types in a mask; returns how many. */
static size_t names_of(unsigned dtypes, const char *ret[TSR_DTYPE_COUNT])
{
	size_t n = 0;

	for (unsigned i = 0; i < TSR_DTYPE_COUNT; i++) {
		if (dtypes >> i & 1)
			ret[n++] = tsr_dtype_name((enum tsr_dtype)i);
	}
	return n;
}

static void put_totals(struct tsr_report *r, const struct tsr_recording_summary *s)
{
	const struct tsr_recording *rec = s->recording;
	const char *names[TSR_DTYPE_COUNT];
	const size_t nnames = names_of(s->dtypes, names);
	const uint64_t first = rec->steps->step, last = rec->steps[rec->nsteps - 1].step;

	tsr_json_open(&r->json, "totals", '{');
	tsr_json_put_u64(&r->json, "steps", rec->nsteps);
	tsr_json_put_u64(&r->json, "first_step", first);
	tsr_json_put_u64(&r->json, "last_step", last);
	tsr_json_put_u64(&r->json, "files", s->nfiles);
	tsr_json_put_u64(&r->json, "tensors", s->ngradients);
	tsr_json_put_u64(&r->json, "missing", s->nmissing);
	tsr_json_put_u64(&r->json, "nbytes", s->nbytes);
	tsr_json_put_strings(&r->json, "dtypes", names, nnames);
	put_range(&r->json, "loss", &s->loss);
	tsr_json_close(&r->json, '}');
	tsr_text_printf(&r->text, "steps    %" PRIu64 " to %" PRIu64 " (%zu), %s, %s\n", first,
			last, rec->nsteps, tsr_format_number(s->nfiles, "file").text,
			tsr_format_bytes((double)s->nbytes).text);
	tsr_text_printf(&r->text, "loss     %s\ntensors  %zu", format_range(&s->loss).text,
			s->ngradients);
	for (size_t i = 0; i < nnames; i++)
		tsr_text_printf(&r->text, ", %s", names[i]);
	if (s->nmissing)
		tsr_text_printf(&r->text, ", %s missing",
				tsr_format_number(s->nmissing, "gradient").text);
	tsr_text_puts(&r->text, "\n");
}

static void put_step(struct tsr_table *t, const struct tsr_recording_summary *s, size_t i)
{
	const struct tsr_recording_step *step = &s->recording->steps[i];
	const char *names[TSR_DTYPE_COUNT];
	const struct tsr_cell file = tsr_format_name(step->files[0], 27);

	tsr_row(t);
	TSR_CELL(t, "step", "step:9", step->step);
	tsr_cell_strings(t, "files", step->files, step->nfiles);
	TSR_CELL(t, "tensors", "tensors", s->steps[i].ntensors);
	TSR_CELL(t, "nbytes", "bytes:8B", s->steps[i].nbytes);
	tsr_cell_strings(t, "dtypes", names, names_of(s->steps[i].dtypes, names));
	if (step->lr) {
		tsr_cell_list(t, "lr", NULL, step->lr, s->recording->ngroups);
		TSR_CELL(t, "-lr", "lr:11.6g", step->lr[0]);
	} else {
		tsr_cell_str(t, "lr", NULL, NULL);
		TSR_CELL(t, "-lr", "lr:11.6g", (double)NAN);
	}
	TSR_CELL(t, "loss", "loss:11.6g", step->has_loss ? step->loss : (double)NAN);
	TSR_CELL(t, "-file", "file",
		 step->nfiles > 1 ? tsr_keepf(t, "%s +%zu", file.text, step->nfiles - 1)
				  : tsr_keep(t, file.text));
}

/* "order    torch-cuda-fused, PyTorch 2.11.0, NVIDIA H100, fused" */
static void put_run(struct tsr_report *r, const struct tsr_recorded_run *run)
{
	tsr_text_printf(&r->text, "order    %s",
			*run->order ? tsr_format_name(run->order, 40).text : "not recorded");
	if (*run->pytorch)
		tsr_text_printf(&r->text, ", PyTorch %s", tsr_format_name(run->pytorch, 40).text);
	if (*run->device)
		tsr_text_printf(&r->text, ", %s", tsr_format_name(run->device, 60).text);
	tsr_text_printf(&r->text, "%s%s%s\n", run->fused == 1 ? ", fused" : "",
			run->foreach == 1 ? ", foreach" : "",
			run->capturable == 1 ? ", capturable" : "");
}

void tsr_recording_report(const struct tsr_recording_summary *s, struct tsr_report *r)
{
	const struct tsr_recording *rec = s->recording;
	const char *optimizer = rec->optimizer == TSR_OPTIMIZER_COUNT
					? NULL
					: tsr_optimizer_name(rec->optimizer);
	struct tsr_table steps = { 0 }, gradients = { 0 };

	tsr_json_put_string(&r->json, "kind", "recording");
	tsr_json_put_string(&r->json, "optimizer", optimizer);
	tsr_recorded_run_put_json(&rec->run, &r->json);
	tsr_text_printf(&r->text, "%s: recording, %s\n\n", tsr_format_name(rec->path, 50).text,
			optimizer ? optimizer : "optimizer not recorded");
	put_run(r, &rec->run);
	put_totals(r, s);
	tsr_json_open(&r->json, "param_groups", '[');
	for (size_t i = 0; i < rec->ngroups; i++) {
		const struct tsr_hyper *h = &rec->groups[i].hyper;
		const struct tsr_recorded_group *g = &s->groups[i];
		const char *before = "\n         ";

		tsr_text_printf(&r->text, "group %-2zu %s, %s elements, lr %s", i,
				tsr_format_number(g->nparams, "parameter").text,
				tsr_format_count(g->numel).text, format_range(&g->lr).text);
		tsr_json_open(&r->json, NULL, '{');
		tsr_json_put_u64(&r->json, "parameters", g->nparams);
		tsr_json_put_u64(&r->json, "elements", g->numel);
		tsr_json_open(&r->json, "hyperparameters", '{');
		for (unsigned k = 0; k < TSR_HYPER_COUNT; k++) {
			const char *name = tsr_hyper_name((enum tsr_hyper_name)k);

			if (!tsr_hyper_is_set(h, (enum tsr_hyper_name)k))
				continue;
			tsr_json_put_double(&r->json, name, h->value[k]);
			tsr_text_printf(&r->text, "%s%s %.9g", before, name, h->value[k]);
			before = ", ";
		}
		tsr_json_close(&r->json, '}');
		put_range(&r->json, "lr", &g->lr);
		tsr_json_close(&r->json, '}');
		tsr_text_puts(&r->text, "\n");
	}
	tsr_json_close(&r->json, ']');
	for (size_t i = 0; i < rec->nsteps; i++)
		put_step(&steps, s, i);
	if (r->verbose)
		tsr_report_gap(r);
	tsr_report_rows(r, steps, "steps",
			r->verbose ? "step,tensors,nbytes,-lr,loss,-file" : NULL);
	for (size_t i = 0; i < s->ngradients; i++) {
		const struct tsr_recorded_gradient *g = &s->gradients[i];

		tsr_row(&gradients);
		TSR_CELL(&gradients, "name", NULL, g->name);
		if (g->group)
			TSR_CELL(&gradients, "param_group", NULL,
				 (uint64_t)(g->group - rec->groups));
		else
			tsr_cell_str(&gradients, "param_group", NULL, NULL);
		TSR_CELL(&gradients, "dtype", NULL, tsr_dtype_name(g->dtype));
		tsr_cell_shape(&gradients, "shape", NULL, g->rank, g->shape);
		TSR_CELL(&gradients, "steps", NULL, g->nsteps);
	}
	tsr_report_rows(r, gradients, "tensors", NULL);
}
