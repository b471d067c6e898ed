/* SPDX-License-Identifier: Apache-2.0 */
/* The manifest of a recording (docs/replay.md). */
#include "recording/recording_data.h"

#include <math.h>
#include <stdio.h>

#include "io/dir.h"
#include "base/fail.h"
#include "io/file.h"
#include "step/hyperparameters.h"
#include "step/step_math.h"
#include "text/bytes.h"
#include "text/json.h"

/* Limits on a manifest: its text, the JSON values in it. */
#define MANIFEST_NBYTES_MAX (UINT64_C(64) << 20)
#define MANIFEST_VALUES_MAX 2000000u

/* A manifest that is being read. */
struct reading {
	struct tsr_recording_data *r;
	const char *path;
	struct tsr_err *err;
};

/* --- Values ----------------------------------------------------------------------------------- */

/* What a value is, in the words of a message. */
static const char *describe(const struct tsr_json *v, char out[80])
{
	double number = 0;

	if (!v)
		return "nothing";
	switch (tsr_json_type(v)) {
	case TSR_JSON_NULL:
		return "null";
	case TSR_JSON_BOOL:
		return "a boolean";
	case TSR_JSON_ARRAY:
		return tsr_json_first(v) ? "a list" : "an empty list";
	case TSR_JSON_OBJECT:
		return "an object";
	case TSR_JSON_STRING:
		snprintf(out, 80, "\"%.60s\"", tsr_json_string(v));
		return out;
	default:
		tsr_json_double(v, &number);
		snprintf(out, 80, "%.17g", number);
		return out;
	}
}

/* "FILE: WHERE: MEMBER: found X, expected Y". */
static enum tsr_status wrong(struct reading *m, const char *where, const char *member,
			     const struct tsr_json *v, const char *expected)
{
	char found[80];

	return tsr_fail(m->err, TSR_E_FORMAT, "%s: %s%s: found %s, expected %s", m->path, where,
			member, describe(v, found), expected);
}

static bool is_finite(const struct tsr_json *v, double *ret)
{
	return tsr_json_double(v, ret) && isfinite(*ret);
}

/* --- Hyperparameters -------------------------------------------------------------------------- */

/* Distinguishes Adam from AdamW where PyTorch has one class for both. */
#define DECOUPLED "decoupled_weight_decay"

/* Members of PyTorch's groups that do not change the update, or only through lr. */
static const char *const ignored[] = { "name",	     "param_names",    "foreach",      "fused",
				       "capturable", "differentiable", "max_lr",       "min_lr",
				       "swa_lr",     "max_momentum",   "base_momentum" };

/* Those that are refused if they are on; of SOAP, but for the first. */
static const char *const refused[] = { DECOUPLED, "merge_dims", "precondition_1d" };

/* false, true, 0 or 1. */
static bool is_flag(const struct tsr_json *v, double *ret)
{
	bool on;

	if (tsr_json_bool(v, &on)) {
		*ret = on;
		return true;
	}
	return tsr_json_double(v, ret) && (*ret == 0 || *ret == 1);
}

static enum tsr_status read_betas(struct reading *m, const char *where, const struct tsr_json *v,
				  struct tsr_hyper *h)
{
	const struct tsr_json *first = tsr_json_is_list(v) && tsr_json_size(v) == 2
					       ? tsr_json_first(v)
					       : NULL;
	double beta1, beta2;

	if (!first || !is_finite(first, &beta1) || !is_finite(tsr_json_next(first), &beta2))
		return wrong(m, where, "betas", v, "a list of two finite numbers");
	tsr_hyper_put(h, TSR_HYPER_BETA1, beta1);
	tsr_hyper_put(h, TSR_HYPER_BETA2, beta2);
	return TSR_OK;
}

static enum tsr_status refuse_unless_off(struct reading *m, const char *where,
					 const struct tsr_json *v)
{
	double on;

	if (!is_flag(v, &on))
		return wrong(m, where, tsr_json_key(v), v, "true or false");
	if (on != 0)
		return tsr_fail(
			m->err, TSR_E_UNSUPPORTED,
			"%s: %s%s: found true, which this optimizer cannot be replayed with",
			m->path, where, tsr_json_key(v));
	return TSR_OK;
}

/* How Muon's lr follows the shape of a matrix, as PyTorch calls it. */
static enum tsr_status read_adjust_lr(struct reading *m, const char *where,
				      const struct tsr_json *v, struct tsr_hyper *h)
{
	const char *name = tsr_json_string(v);
	const bool match = name && strcmp(name, "match_rms_adamw") == 0;

	if (!match && tsr_json_type(v) != TSR_JSON_NULL && !(name && strcmp(name, "original") == 0))
		return wrong(m, where, "adjust_lr_fn", v, "null, original or match_rms_adamw");
	tsr_hyper_put(h, TSR_HYPER_MATCH_RMS, match);
	return TSR_OK;
}

/* The rounds of Muon are those that every program has. */
static enum tsr_status check_rounds(struct reading *m, const char *where, const struct tsr_json *v)
{
	static const double numbers[] = { TSR_MUON_A, TSR_MUON_B, TSR_MUON_C };
	const struct tsr_json *item = tsr_json_is_list(v) ? tsr_json_first(v) : NULL;
	bool same = tsr_json_is_list(v) && tsr_json_size(v) == 3;
	double value;

	if (strcmp(tsr_json_key(v), "ns_steps") == 0) {
		if (is_finite(v, &value) && value == TSR_MUON_ROUNDS)
			return TSR_OK;
		return wrong(m, where, "ns_steps", v, "5");
	}
	for (size_t i = 0; same && i < 3; i++, item = tsr_json_next(item))
		same = is_finite(item, &value) && value == numbers[i];
	return same ? TSR_OK : wrong(m, where, "ns_coefficients", v, "3.4445, -4.7750, 2.0315");
}

/* A member of a group other than `params`. */
static enum tsr_status read_hyper(struct reading *m, const char *where, const struct tsr_json *v,
				  struct tsr_hyper *h)
{
	const char *name = tsr_json_key(v);
	enum tsr_hyper_name hyper;
	double value;

	/* Those that are one number under their own name; for the others a manifest has those of PyTorch. */
	if (tsr_hyper_find(name, &hyper) && hyper != TSR_HYPER_BETA1 && hyper != TSR_HYPER_BETA2 &&
	    hyper != TSR_HYPER_MATCH_RMS) {
		const bool flag = tsr_hyper_is_flag(hyper);

		if (flag ? !is_flag(v, &value) : !is_finite(v, &value))
			return wrong(m, where, name, v, flag ? "true or false" : "a finite number");
		/* Off is as not there, in reports as well. */
		if (!tsr_hyper_is_switch(hyper) || value != 0)
			tsr_hyper_put(h, hyper, value);
		return TSR_OK;
	}
	if (strcmp(name, "betas") == 0)
		return read_betas(m, where, v, h);
	if (strcmp(name, "adjust_lr_fn") == 0)
		return read_adjust_lr(m, where, v, h);
	if (strcmp(name, "ns_steps") == 0 || strcmp(name, "ns_coefficients") == 0)
		return check_rounds(m, where, v);
	if (strcmp(name, DECOUPLED) == 0 && m->r->pub.optimizer == TSR_OPTIMIZER_ADAMW)
		return TSR_OK;
	if (TSR_IS_AMONG(name, refused))
		return refuse_unless_off(m, where, v);
	if (TSR_IS_AMONG(name, ignored))
		return TSR_OK;
	return tsr_fail(m->err, TSR_E_UNSUPPORTED,
			"%s: %sfound the hyperparameter %.100s, which no optimizer of tersor has",
			m->path, where, name);
}

/* --- Groups ----------------------------------------------------------------------------------- */

static enum tsr_status read_params(struct reading *m, const char *where, const struct tsr_json *v,
				   struct tsr_recording_group *g)
{
	const char **params;

	if (!tsr_json_is_list(v))
		return wrong(m, where, "params", v, "a list of names");
	TSR_TRY(TSR_ARENA_NEW(&params, tsr_json_size(v), m->r->arena,
			      tsr_recording_nomem(m->r, m->err)));
	g->params = params;
	for (v = tsr_json_first(v); v; v = tsr_json_next(v)) {
		const char *name = tsr_json_string(v);

		if (!name || !*name)
			return wrong(m, where, "params", v, "the name of a parameter");
		if (strlen(name) > TSR_NAME_MAX)
			return tsr_fail(
				m->err, TSR_E_LIMIT,
				"%s: %sparams: name %.40s... of %zu bytes is over the limit of %u",
				m->path, where, name, strlen(name), TSR_NAME_MAX);
		params[g->nparams] = tsr_arena_string(m->r->arena, name);
		if (!params[g->nparams++])
			return tsr_recording_nomem(m->r, m->err);
	}
	return TSR_OK;
}

static enum tsr_status read_group(struct reading *m, size_t number, const struct tsr_json *v,
				  struct tsr_recording_group *g)
{
	char where[48];

	snprintf(where, sizeof(where), "param_groups[%zu]: ", number);
	if (tsr_json_type(v) != TSR_JSON_OBJECT)
		return wrong(m, where, "group", v, "an object");
	for (v = tsr_json_first(v); v; v = tsr_json_next(v)) {
		if (strcmp(tsr_json_key(v), "params") == 0)
			TSR_TRY(read_params(m, where, v, g));
		else
			TSR_TRY(read_hyper(m, where, v, &g->hyper));
	}
	if (!g->params && m->r->pub.ngroups > 1)
		return wrong(m, where, "params", NULL, "a list of names");
	if (g->params && !g->nparams && m->r->pub.ngroups == 1)
		return tsr_fail(m->err, TSR_E_FORMAT,
				"%s: %sparams: found an empty list, expected names", m->path,
				where);
	return TSR_OK;
}

/* Sort all parameters by name; none may be listed twice. */
static enum tsr_status index_params(struct reading *m)
{
	const struct tsr_recording *pub = &m->r->pub;
	struct tsr_named *params;
	size_t n = 0;

	for (size_t g = 0; g < pub->ngroups; g++)
		n += pub->groups[g].nparams;
	TSR_TRY(TSR_ARENA_NEW(&params, n, m->r->arena, tsr_recording_nomem(m->r, m->err)));
	m->r->params = params;
	for (size_t g = 0; g < pub->ngroups; g++) {
		for (size_t i = 0; i < pub->groups[g].nparams; i++)
			params[m->r->nparams++] = (struct tsr_named){ pub->groups[g].params[i], g };
	}
	tsr_named_sort(params, n);
	for (size_t i = 1; i < n; i++) {
		if (strcmp(params[i - 1].name, params[i].name) == 0)
			return tsr_fail(m->err, TSR_E_FORMAT,
					"%s: param_groups: parameter %.200s: found in group %zu "
					"and in group %zu, expected it once",
					m->path, params[i].name, params[i - 1].index,
					params[i].index);
	}
	return TSR_OK;
}

static enum tsr_status read_groups(struct reading *m, const struct tsr_json *v)
{
	struct tsr_recording *pub = &m->r->pub;
	const size_t n = tsr_json_is_list(v) ? tsr_json_size(v) : v ? 0 : 1;
	struct tsr_recording_group *groups;

	if (!n)
		return wrong(m, "", "param_groups", v, "a list of groups");
	TSR_TRY(TSR_ARENA_NEW(&groups, n, m->r->arena, tsr_recording_nomem(m->r, m->err)));
	pub->groups = groups;
	pub->ngroups = n;
	if (!v)
		return TSR_OK;
	v = tsr_json_first(v);
	for (size_t i = 0; i < n; i++, v = tsr_json_next(v))
		TSR_TRY(read_group(m, i, v, &groups[i]));
	return index_params(m);
}

/* --- Steps ------------------------------------------------------------------------------------ */

static enum tsr_status read_file_name(struct reading *m, const char *where,
				      const struct tsr_json *v, const char **ret)
{
	const char *name = tsr_json_string(v);

	if (!name || !tsr_dir_is_name(name))
		return wrong(m, where, "file", v, "a name of 1 to 255 bytes without directories");
	*ret = tsr_arena_string(m->r->arena, name);
	return *ret ? TSR_OK : tsr_recording_nomem(m->r, m->err);
}

/* Read `file`, or `files` with one per rank. */
static enum tsr_status read_files(struct reading *m, const char *where, const struct tsr_json *v,
				  struct tsr_recording_step *step)
{
	const struct tsr_json *file = tsr_json_get(v, "file"), *list = tsr_json_get(v, "files");
	const char **files;

	if (file && list)
		return tsr_fail(m->err, TSR_E_FORMAT,
				"%s: %sfound both file and files, expected one of them", m->path,
				where);
	if (list && (!tsr_json_is_list(list) || !tsr_json_first(list)))
		return wrong(m, where, "files", list, "a list of file names");
	step->nfiles = list ? tsr_json_size(list) : 1;
	TSR_TRY(TSR_ARENA_NEW(&files, step->nfiles, m->r->arena,
			      tsr_recording_nomem(m->r, m->err)));
	step->files = files;
	v = list ? tsr_json_first(list) : file;
	for (size_t i = 0; i < step->nfiles; i++, v = tsr_json_next(v))
		TSR_TRY(read_file_name(m, where, v, &files[i]));
	return TSR_OK;
}

static enum tsr_status read_lr(struct reading *m, const char *where, const struct tsr_json *v,
			       struct tsr_recording_step *step)
{
	const size_t ngroups = m->r->pub.ngroups;
	double *lr;

	if (!v)
		return TSR_OK;
	if (!tsr_json_is_list(v))
		return wrong(m, where, "lr", v, "a list with one number per group");
	if (tsr_json_size(v) != ngroups)
		return tsr_fail(m->err, TSR_E_FORMAT,
				"%s: %slr: found a list of %zu, expected %zu: one number per group",
				m->path, where, tsr_json_size(v), ngroups);
	TSR_TRY(TSR_ARENA_NEW(&lr, ngroups, m->r->arena, tsr_recording_nomem(m->r, m->err)));
	step->lr = lr;
	for (v = tsr_json_first(v); v; v = tsr_json_next(v), lr++) {
		if (!is_finite(v, lr) || *lr < 0)
			return wrong(m, where, "lr", v, "a finite number that is not negative");
	}
	return TSR_OK;
}

static enum tsr_status read_loss(struct reading *m, const char *where, const struct tsr_json *v,
				 struct tsr_recording_step *step)
{
	if (!v || tsr_json_type(v) == TSR_JSON_NULL)
		return TSR_OK;
	if (!is_finite(v, &step->loss))
		return wrong(m, where, "loss", v, "a finite number");
	step->has_loss = true;
	return TSR_OK;
}

static enum tsr_status read_step(struct reading *m, size_t number, const struct tsr_json *v,
				 struct tsr_recording_step *step)
{
	const struct tsr_json *n = tsr_json_get(v, "step");
	char where[48];

	snprintf(where, sizeof(where), "steps[%zu]: ", number);
	if (tsr_json_type(v) != TSR_JSON_OBJECT)
		return wrong(m, where, "step", v, "an object");
	if (!tsr_json_u64(n, &step->step) || !step->step)
		return wrong(m, where, "step", n, "an integer from 1 to 2^48-1");
	snprintf(where, sizeof(where), "step %" PRIu64 ": ", step->step);
	TSR_TRY(read_files(m, where, v, step));
	TSR_TRY(read_lr(m, where, tsr_json_get(v, "lr"), step));
	return read_loss(m, where, tsr_json_get(v, "loss"), step);
}

static enum tsr_status read_steps(struct reading *m, const struct tsr_json *v)
{
	struct tsr_recording *pub = &m->r->pub;
	const size_t n = tsr_json_is_list(v) ? tsr_json_size(v) : 0;
	struct tsr_recording_step *steps;

	if (!n)
		return wrong(m, "", "steps", v, "a list of steps");
	TSR_TRY(TSR_ARENA_NEW(&steps, n, m->r->arena, tsr_recording_nomem(m->r, m->err)));
	pub->steps = steps;
	pub->nsteps = n;
	v = tsr_json_first(v);
	for (size_t i = 0; i < n; i++, v = tsr_json_next(v)) {
		TSR_TRY(read_step(m, i, v, &steps[i]));
		if (i && steps[i].step != steps[i - 1].step + 1)
			return tsr_fail(m->err, TSR_E_FORMAT,
					"%s: steps: found step %" PRIu64 " after step %" PRIu64
					", expected %" PRIu64,
					m->path, steps[i].step, steps[i - 1].step,
					steps[i - 1].step + 1);
	}
	return TSR_OK;
}

/* --- The whole -------------------------------------------------------------------------------- */

static enum tsr_status read_version(struct reading *m, const struct tsr_json *root,
				    const char *format)
{
	const struct tsr_json *found = tsr_json_get(root, "format");
	const struct tsr_json *version = tsr_json_get(root, "version");
	const char *text = tsr_json_string(found);
	char expected[40];
	uint64_t number;

	snprintf(expected, sizeof(expected), "\"%s\"", format);
	if (!text || strcmp(text, format) != 0)
		return wrong(m, "", "format", found, expected);
	if (!tsr_json_u64(version, &number))
		return wrong(m, "", "version", version, "1");
	if (number != 1)
		return tsr_fail(m->err, TSR_E_UNSUPPORTED,
				"%s: version: found %" PRIu64
				", expected 1: written for a newer tersor?",
				m->path, number);
	return TSR_OK;
}

static enum tsr_status read_optimizer(struct reading *m, const struct tsr_json *v)
{
	if (!v || tsr_json_type(v) == TSR_JSON_NULL)
		return TSR_OK;
	if (!tsr_json_string(v))
		return wrong(m, "", "optimizer", v, "the name of an optimizer");
	if (!tsr_optimizer_find(tsr_json_string(v), &m->r->pub.optimizer))
		return tsr_fail(
			m->err, TSR_E_UNSUPPORTED,
			"%s: optimizer: found \"%.60s\", expected sgd, sgdw, adam, adamw or lion",
			m->path, tsr_json_string(v));
	return TSR_OK;
}

/* A string of at most @room - 1 bytes; null is as none. */
static enum tsr_status read_text(struct reading *m, const struct tsr_json *root, const char *member,
				 char *ret, size_t room)
{
	const struct tsr_json *v = tsr_json_get(root, member);
	const char *text = v ? tsr_json_string(v) : NULL;

	if (!v || tsr_json_type(v) == TSR_JSON_NULL)
		return TSR_OK;
	if (!text || !*text)
		return wrong(m, "", member, v, "a string or null");
	if (strlen(text) >= room)
		return tsr_fail(m->err, TSR_E_LIMIT,
				"%s: %s: %.40s... of %zu bytes is over the limit of %zu", m->path,
				member, text, strlen(text), room - 1);
	memcpy(ret, text, strlen(text) + 1);
	return TSR_OK;
}

static enum tsr_status read_switch(struct reading *m, const struct tsr_json *root,
				   const char *member, signed char *ret)
{
	const struct tsr_json *v = tsr_json_get(root, member);
	bool on;

	if (!v || tsr_json_type(v) == TSR_JSON_NULL)
		return TSR_OK;
	if (!tsr_json_bool(v, &on))
		return wrong(m, "", member, v, "true, false or null");
	*ret = on;
	return TSR_OK;
}

/* Whether a version such as 2.10.1+cu130 is one before PyTorch 2.11. */
static bool is_before_2_11(const char *version)
{
	unsigned major, minor;

	return sscanf(version, "%4u.%4u", &major, &minor) == 2 &&
	       (major < 2 || (major == 2 && minor < 11));
}

/* The order of the run: one that this tersor does not know is as one that is not recorded. */
static enum tsr_status read_run(struct reading *m, const struct tsr_json *root)
{
	struct tsr_recording *pub = &m->r->pub;
	struct tsr_recorded_run *run = &pub->run;

	TSR_TRY(read_text(m, root, "order", run->order, sizeof(run->order)));
	TSR_TRY(read_text(m, root, "pytorch", run->pytorch, sizeof(run->pytorch)));
	TSR_TRY(read_text(m, root, "device", run->device, sizeof(run->device)));
	TSR_TRY(read_switch(m, root, "fused", &run->fused));
	TSR_TRY(read_switch(m, root, "foreach", &run->foreach));
	TSR_TRY(read_switch(m, root, "capturable", &run->capturable));
	if (!tsr_order_find(run->order, &pub->order))
		return TSR_OK;
	if (pub->order == TSR_ORDER_TORCH_CUDA_FUSED && is_before_2_11(run->pytorch))
		pub->order = TSR_ORDER_TORCH_CUDA_FUSED_DOUBLE;
	if (run->capturable != 1 || pub->optimizer == TSR_OPTIMIZER_SGD)
		return TSR_OK;
	if (pub->order == TSR_ORDER_TORCH_CUDA_FOREACH)
		pub->order = TSR_ORDER_TORCH_CUDA_CAPTURABLE;
	else if (pub->order == TSR_ORDER_TORCH_CUDA_FORLOOP)
		pub->order = TSR_ORDER_TORCH_CUDA_CAPTURABLE_FORLOOP;
	return TSR_OK;
}

enum tsr_status tsr_recording_read_run(struct tsr_recording_data *r, const char *path,
				       const struct tsr_json *root, const char *part,
				       const char *format, struct tsr_err *err)
{
	struct reading m = { .r = r, .path = path, .err = err };

	if (tsr_json_type(root) != TSR_JSON_OBJECT)
		return wrong(&m, "", part, root, "an object");
	TSR_TRY(read_version(&m, root, format));
	TSR_TRY(read_optimizer(&m, tsr_json_get(root, "optimizer")));
	TSR_TRY(read_run(&m, root));
	return read_groups(&m, tsr_json_get(root, "param_groups"));
}

enum tsr_status tsr_recording_read_manifest(struct tsr_recording_data *r, struct tsr_err *err)
{
	struct tsr_json_rules rules = { .part = "manifest",
					.max_depth = 16,
					.max_values = MANIFEST_VALUES_MAX };
	struct reading m = { .r = r, .err = err };
	TSR_OWNED(tsr_json_free) struct tsr_json *root = NULL;
	TSR_OWNED(tsr_file_close) struct tsr_file *f = NULL;

	TSR_TRY(tsr_file_open_in(r->pub.path, TSR_MANIFEST_NAME, r->options.follow, &f, err));
	m.path = rules.file = tsr_file_path(f);
	TSR_TRY(tsr_json_read_file(f, MANIFEST_NBYTES_MAX, &rules, &root, err));
	TSR_TRY(tsr_recording_read_run(r, m.path, root, rules.part, "tersor-recording", err));
	return read_steps(&m, tsr_json_get(root, "steps"));
}
