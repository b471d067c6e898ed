/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/recording_report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "ckpt/checkpoint_model.h"
#include "text/json.h"
#include "cli/output.h"

/* A tensor that at least one step has. */
struct gradient {
	char *name;
	const struct tsr_recording_group *group; /* NULL: in none */
	enum tsr_dtype dtype; /* of the first */
	unsigned rank;
	uint64_t *shape;
	uint64_t numel;
	uint64_t nsteps; /* that have it */
};

struct step_totals {
	uint64_t ntensors, nbytes;
	unsigned dtypes; /* mask */
};

struct totals {
	const struct tsr_recording *r;
	size_t ngradients, sorted; /* the first so many are sorted by name */
	struct gradient *gradients;
	struct step_totals *steps;
	uint64_t nfiles, nbytes;
	unsigned dtypes;
	struct tsr_err err;
};

/* --- Collecting ------------------------------------------------------------------------------- */

static int by_name(const void *va, const void *vb)
{
	const struct gradient *a = va, *b = vb;

	return strcmp(a->name, b->name);
}

static enum tsr_status add_gradient(struct totals *t, const struct tsr_tensor *tensor)
{
	const size_t n = t->ngradients;
	struct gradient *g;

	if ((n & (n - 1)) == 0) { /* room for a power of two */
		g = realloc(t->gradients, (n ? 2 * n : 1) * sizeof(*g));
		if (!g)
			return tsr_fail_nomem(&t->err, t->r->path);
		t->gradients = g;
	}
	g = &t->gradients[n];
	*g = (struct gradient){ .name = strdup(tensor->name),
				.group = tsr_recording_group_of(t->r, tensor->name),
				.dtype = tensor->dtype,
				.rank = tensor->rank,
				.shape = calloc(tensor->rank + 1, sizeof(*g->shape)),
				.numel = tensor->numel,
				.nsteps = 1 };
	t->ngradients++;
	if (!g->name || !g->shape)
		return tsr_fail_nomem(&t->err, t->r->path);
	if (tensor->rank)
		memcpy(g->shape, tensor->shape, tensor->rank * sizeof(*g->shape));
	return TSR_OK;
}

static enum tsr_status count_tensor(struct totals *t, const struct tsr_checkpoint *c,
				    const struct tsr_recording_step *step,
				    const struct tsr_tensor *tensor)
{
	const struct gradient key = { .name = (char *)tensor->name };
	char found[64], expected[64];
	struct gradient *g = t->sorted ? bsearch(&key, t->gradients, t->sorted,
						 sizeof(*t->gradients), by_name)
				       : NULL;

	if (!g)
		return add_gradient(t, tensor);
	g->nsteps++;
	if (g->rank == tensor->rank &&
	    (!g->rank || memcmp(g->shape, tensor->shape, g->rank * sizeof(*g->shape)) == 0))
		return TSR_OK;
	cli_format_shape(found, sizeof(found), tensor->rank, tensor->shape);
	cli_format_shape(expected, sizeof(expected), g->rank, g->shape);
	return tsr_fail(&t->err, TSR_E_FORMAT,
			"%s: step %llu: tensor %.200s: found shape %s, expected %s as in the steps "
			"before",
			c->path, (unsigned long long)step->step, tensor->name, found, expected);
}

static enum tsr_status count_step(struct totals *t, size_t index)
{
	struct step_totals *s = &t->steps[index];
	struct tsr_checkpoint *c = NULL;
	enum tsr_status status = tsr_recording_open_step(t->r, index, &c, &t->err);

	for (size_t i = 0; status == TSR_OK && i < c->ntensors; i++) {
		status = count_tensor(t, c, &t->r->steps[index], &c->tensors[i]);
		s->nbytes += tsr_tensor_nbytes(&c->tensors[i]);
		s->dtypes |= 1u << c->tensors[i].dtype;
		s->ntensors++;
	}
	tsr_checkpoint_close(c);
	if (t->sorted < t->ngradients && status == TSR_OK)
		qsort(t->gradients, t->ngradients, sizeof(*t->gradients), by_name);
	t->sorted = t->ngradients;
	t->nbytes += s->nbytes;
	t->dtypes |= s->dtypes;
	t->nfiles += t->r->steps[index].nfiles;
	return status;
}

static enum tsr_status count_all(struct totals *t)
{
	t->steps = calloc(t->r->nsteps, sizeof(*t->steps));
	if (!t->steps)
		return tsr_fail_nomem(&t->err, t->r->path);
	for (size_t i = 0; i < t->r->nsteps; i++)
		TSR_TRY(count_step(t, i));
	return TSR_OK;
}

static void free_totals(struct totals *t)
{
	for (size_t i = 0; i < t->ngradients; i++) {
		free(t->gradients[i].name);
		free(t->gradients[i].shape);
	}
	free(t->gradients);
	free(t->steps);
}

/* --- Figures ---------------------------------------------------------------------------------- */

/* The least and the greatest of some numbers; @n counts them. */
struct range {
	double low, high;
	size_t n;
};

static void widen(struct range *r, double value)
{
	r->low = r->n && r->low <= value ? r->low : value;
	r->high = r->n && r->high >= value ? r->high : value;
	r->n++;
}

static struct range lr_range(const struct tsr_recording *r, size_t group)
{
	struct range range = { 0 };

	for (size_t i = 0; i < r->nsteps; i++) {
		if (r->steps[i].lr)
			widen(&range, r->steps[i].lr[group]);
	}
	return range;
}

static struct range loss_range(const struct tsr_recording *r)
{
	struct range range = { 0 };

	for (size_t i = 0; i < r->nsteps; i++) {
		if (r->steps[i].has_loss)
			widen(&range, r->steps[i].loss);
	}
	return range;
}

/* Parameters of a group, and elements of those that have a gradient in some step. */
static uint64_t count_group(const struct totals *t, size_t group, uint64_t *elements_ret)
{
	const struct tsr_recording_group *g = &t->r->groups[group];
	uint64_t n = 0;

	*elements_ret = 0;
	for (size_t i = 0; i < t->ngradients; i++) {
		if (t->gradients[i].group != g)
			continue;
		*elements_ret += t->gradients[i].numel;
		n++;
	}
	return g->params ? g->nparams : n;
}

/* Gradients that a parameter of the manifest has not, over all steps. */
static uint64_t count_missing(const struct totals *t)
{
	uint64_t wanted = 0, found = 0;

	for (size_t g = 0; g < t->r->ngroups; g++) {
		uint64_t elements;

		wanted += count_group(t, g, &elements) * t->r->nsteps;
	}
	for (size_t i = 0; i < t->ngradients; i++)
		found += t->gradients[i].group ? t->gradients[i].nsteps : 0;
	return wanted - found;
}

static void warn_extra(const struct cli_common *common, const struct totals *t)
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
			 t->r->path, first, n);
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

static void print_range(const struct range *r)
{
	if (r->n == 0)
		printf("not recorded");
	else if (r->low == r->high)
		printf("%.6g", r->low);
	else
		printf("%.6g to %.6g", r->low, r->high);
}

static void print_group(const struct totals *t, size_t group)
{
	const struct tsr_hyper *h = &t->r->groups[group].hyper;
	const struct range lr = lr_range(t->r, group);
	uint64_t elements;
	const uint64_t n = count_group(t, group, &elements);
	const char *before = "\n         ";
	char count[32];

	cli_format_count(count, sizeof(count), elements);
	printf("group %-2zu %llu parameter%s, %s elements, lr ", group, (unsigned long long)n,
	       n == 1 ? "" : "s", count);
	print_range(&lr);
	for (unsigned i = 0; i < TSR_HYPER_COUNT; i++) {
		if (!tsr_hyper_is_set(h, (enum tsr_hyper_name)i))
			continue;
		printf("%s%s %.9g", before, tsr_hyper_name((enum tsr_hyper_name)i), h->value[i]);
		before = ", ";
	}
	printf("\n");
}

static void print_steps(const struct totals *t)
{
	printf("\n%9s %7s %8s %11s %11s  %s\n", "step", "tensors", "bytes", "lr", "loss", "file");
	for (size_t i = 0; i < t->r->nsteps; i++) {
		const struct tsr_recording_step *s = &t->r->steps[i];
		char size[16], lr[24] = "-", loss[24] = "-", name[128];

		cli_format_bytes(size, sizeof(size), (double)t->steps[i].nbytes);
		cli_format_name(name, sizeof(name), s->files[0], 27);
		if (s->lr)
			snprintf(lr, sizeof(lr), "%.6g", s->lr[0]);
		if (s->has_loss)
			snprintf(loss, sizeof(loss), "%.6g", s->loss);
		printf("%9llu %7llu %8s %11s %11s  %s", (unsigned long long)s->step,
		       (unsigned long long)t->steps[i].ntensors, size, lr, loss, name);
		if (s->nfiles > 1)
			printf(" +%zu", s->nfiles - 1);
		printf("\n");
	}
}

static void print_report(const struct cli_common *common, const struct totals *t)
{
	const struct tsr_recording *r = t->r;
	const struct range loss = loss_range(r);
	const uint64_t missing = count_missing(t);
	char name[128], size[16];

	cli_format_name(name, sizeof(name), r->path, 50);
	cli_format_bytes(size, sizeof(size), (double)t->nbytes);
	printf("%s: recording, %s\n\n", name,
	       r->optimizer == TSR_OPTIMIZER_COUNT ? "optimizer not recorded"
						   : tsr_optimizer_name(r->optimizer));
	printf("steps    %llu to %llu (%zu), %llu file%s, %s\n", (unsigned long long)r->steps->step,
	       (unsigned long long)r->steps[r->nsteps - 1].step, r->nsteps,
	       (unsigned long long)t->nfiles, t->nfiles == 1 ? "" : "s", size);
	printf("loss     ");
	print_range(&loss);
	printf("\ntensors  %zu, ", t->ngradients);
	print_dtypes(t->dtypes);
	if (missing)
		printf(", %llu gradient%s missing", (unsigned long long)missing,
		       missing == 1 ? "" : "s");
	printf("\n");
	for (size_t g = 0; g < r->ngroups; g++)
		print_group(t, g);
	if (common->verbose)
		print_steps(t);
}

/* --- For machines ----------------------------------------------------------------------------- */

static void range_json(struct tsr_text *json, const char *key, const struct range *r)
{
	if (!r->n) {
		tsr_json_put_null(json, key);
		return;
	}
	tsr_json_open(json, key, '[');
	tsr_json_put_double(json, NULL, r->low);
	tsr_json_put_double(json, NULL, r->high);
	tsr_json_close(json, ']');
}

static void group_json(struct tsr_text *json, const struct totals *t, size_t group)
{
	const struct tsr_recording_group *g = &t->r->groups[group];
	const struct range lr = lr_range(t->r, group);
	uint64_t elements;

	tsr_json_open(json, NULL, '{');
	tsr_json_put_u64(json, "parameters", count_group(t, group, &elements));
	tsr_json_put_u64(json, "elements", elements);
	tsr_json_open(json, "hyperparameters", '{');
	for (unsigned i = 0; i < TSR_HYPER_COUNT; i++) {
		if (tsr_hyper_is_set(&g->hyper, (enum tsr_hyper_name)i))
			tsr_json_put_double(json, tsr_hyper_name((enum tsr_hyper_name)i),
					    g->hyper.value[i]);
	}
	tsr_json_close(json, '}');
	range_json(json, "lr", &lr);
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

static void step_json(struct tsr_text *json, const struct totals *t, size_t index)
{
	const struct tsr_recording_step *s = &t->r->steps[index];

	tsr_json_open(json, NULL, '{');
	tsr_json_put_u64(json, "step", s->step);
	tsr_json_open(json, "files", '[');
	for (size_t i = 0; i < s->nfiles; i++)
		tsr_json_put_string(json, NULL, s->files[i]);
	tsr_json_close(json, ']');
	tsr_json_put_u64(json, "tensors", t->steps[index].ntensors);
	tsr_json_put_u64(json, "nbytes", t->steps[index].nbytes);
	dtypes_json(json, t->steps[index].dtypes);
	if (s->lr) {
		tsr_json_open(json, "lr", '[');
		for (size_t g = 0; g < t->r->ngroups; g++)
			tsr_json_put_double(json, NULL, s->lr[g]);
		tsr_json_close(json, ']');
	} else {
		tsr_json_put_null(json, "lr");
	}
	if (s->has_loss)
		tsr_json_put_double(json, "loss", s->loss);
	else
		tsr_json_put_null(json, "loss");
	tsr_json_close(json, '}');
}

static void gradient_json(struct tsr_text *json, const struct totals *t, const struct gradient *g)
{
	tsr_json_open(json, NULL, '{');
	tsr_json_put_string(json, "name", g->name);
	if (g->group)
		tsr_json_put_u64(json, "param_group", (uint64_t)(g->group - t->r->groups));
	else
		tsr_json_put_null(json, "param_group");
	tsr_json_put_string(json, "dtype", tsr_dtype_name(g->dtype));
	tsr_json_open(json, "shape", '[');
	for (unsigned d = 0; d < g->rank; d++)
		tsr_json_put_u64(json, NULL, g->shape[d]);
	tsr_json_close(json, ']');
	tsr_json_put_u64(json, "steps", g->nsteps);
	tsr_json_close(json, '}');
}

static int report_json(const struct cli_cmd *cmd, const struct cli_common *common,
		       const struct totals *t)
{
	const struct tsr_recording *r = t->r;
	const struct range loss = loss_range(r);
	struct tsr_text json = { 0 };

	cli_json_begin(&json, cmd);
	tsr_json_put_string(&json, "file", r->path);
	tsr_json_put_string(&json, "kind", "recording");
	if (r->optimizer == TSR_OPTIMIZER_COUNT)
		tsr_json_put_null(&json, "optimizer");
	else
		tsr_json_put_string(&json, "optimizer", tsr_optimizer_name(r->optimizer));
	tsr_json_open(&json, "totals", '{');
	tsr_json_put_u64(&json, "steps", r->nsteps);
	tsr_json_put_u64(&json, "first_step", r->steps->step);
	tsr_json_put_u64(&json, "last_step", r->steps[r->nsteps - 1].step);
	tsr_json_put_u64(&json, "files", t->nfiles);
	tsr_json_put_u64(&json, "tensors", t->ngradients);
	tsr_json_put_u64(&json, "missing", count_missing(t));
	tsr_json_put_u64(&json, "nbytes", t->nbytes);
	dtypes_json(&json, t->dtypes);
	range_json(&json, "loss", &loss);
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
	struct tsr_recording *r = NULL;
	struct totals t = { 0 };
	int status = CLI_OK;

	if (tsr_recording_open(path, options, &r, &t.err) != TSR_OK)
		return cli_error(&t.err);
	t.r = r;
	if (count_all(&t) != TSR_OK) {
		status = cli_error(&t.err);
	} else {
		warn_extra(common, &t);
		if (cli_wants_text(common))
			print_report(common, &t);
		if (common->json.given)
			status = report_json(cmd, common, &t);
	}
	free_totals(&t);
	tsr_recording_close(r);
	return status;
}
