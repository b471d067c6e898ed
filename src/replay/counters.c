/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many steps a parameter has seen: a tensor NAME.step, or a number beside its state in what
 * was saved around the tensors.
 */
#include "replay/replay_plan.h"

#include <math.h>

#include "base/fail.h"
#include "ckpt/build.h"
#include "ckpt/piece_hash.h"
#include "ckpt/checkpoint_model.h"
#include "codec/narrow.h"

/* The largest count: it stays exact as a double, and has room for more. */
#define COUNT_MAX ((UINT64_C(1) << 48) - 1)

/* --- Numbers in tensors ------------------------------------------------------------------------ */

union number {
	unsigned char bytes[8];
	int32_t i32;
	int64_t i64;
	float f32;
	double f64;
};

/* Its value, or NaN for a type that counters do not have. */
static double number_value(const union number *n, enum tsr_dtype dtype)
{
	float x;

	switch (dtype) {
	case TSR_F64:
		return n->f64;
	case TSR_I64:
		return (double)n->i64;
	case TSR_I32:
		return n->i32;
	case TSR_F32:
	case TSR_F16:
	case TSR_BF16:
		tsr_widen(dtype, n->bytes, 1, &x);
		return x;
	default:
		return NAN;
	}
}

static void number_set(union number *n, enum tsr_dtype dtype, uint64_t value)
{
	switch (dtype) {
	case TSR_F64:
		n->f64 = (double)value;
		break;
	case TSR_I64:
		n->i64 = (int64_t)value;
		break;
	case TSR_I32:
		n->i32 = (int32_t)value;
		break;
	default:
		n->f32 = (float)value;
		tsr_narrow_in_place(dtype, &n->f32, 1);
	}
}

/* The type itself, or a wider one that holds this count exactly. */
static enum tsr_dtype dtype_for(enum tsr_dtype dtype, uint64_t count)
{
	static const enum tsr_dtype reals[] = { TSR_F32, TSR_F64 };
	const bool is_int = dtype == TSR_I32 || dtype == TSR_I64;
	union number n = { .bytes = { 0 } };

	if (is_int)
		return count > INT32_MAX ? TSR_I64 : dtype;
	number_set(&n, dtype, count);
	for (size_t i = 0; number_value(&n, dtype) != (double)count; i++) {
		dtype = reals[i];
		number_set(&n, dtype, count);
	}
	return dtype;
}

static bool is_count(double value)
{
	return value >= 0 && value <= (double)COUNT_MAX && value == floor(value);
}

static enum tsr_status read_tensor(struct tsr_replaying *r, size_t tensor, uint64_t *ret)
{
	const struct tsr_tensor *t = &r->c->tensors[tensor];
	union number n = { .bytes = { 0 } };
	double value = NAN;

	if (t->numel == 1 && !t->coding.codec && tsr_tensor_nbytes(t) <= sizeof(n)) {
		TSR_TRY(tsr_array_read(r->c, &r->c->arrays[t->plane[0]], 0,
				       (size_t)tsr_tensor_nbytes(t), &n, r->err));
		if (r->c->packed && tsr_plane_hash(&n, (size_t)tsr_tensor_nbytes(t)) != t->hash[0])
			return tsr_fail(r->err, TSR_E_FORMAT,
					"%s: tensor %.200s: data is damaged: its hash is not the "
					"recorded one",
					r->c->path, t->name);
		value = number_value(&n, t->dtype);
	}
	if (!is_count(value))
		return tsr_fail(r->err, TSR_E_FORMAT,
				"%s: tensor %.200s: found %g in %" PRIu64
				" elements of %s, expected a number of steps",
				r->c->path, t->name, value, t->numel, tsr_dtype_name(t->dtype));
	*ret = (uint64_t)value;
	return TSR_OK;
}

static enum tsr_status read_scalar(struct tsr_replaying *r, struct tsr_replay_param *p)
{
	const double value = tsr_value_number(p->scalar);

	if (!is_count(value))
		return tsr_fail(r->err, TSR_E_FORMAT,
				"%s: step of %.200s: found %g, expected a number of steps",
				r->c->path, p->name, value);
	p->count = (uint64_t)value;
	return TSR_OK;
}

/* --- Reading ----------------------------------------------------------------------------------- */

static bool has_state(const struct tsr_replaying *r)
{
	for (size_t i = 0; i < r->nparams; i++) {
		if (tsr_replay_is_begun(&r->params[i]))
			return true;
	}
	return false;
}

/* Read the counters; *any_ret: whether there are any.  States without one get the largest count. */
static enum tsr_status read_recorded(struct tsr_replaying *r, bool *any_ret, uint64_t *most_ret)
{
	*any_ret = false;
	*most_ret = 0;
	for (size_t i = 0; i < r->nparams; i++) {
		struct tsr_replay_param *p = &r->params[i];

		if (p->counter != SIZE_MAX) {
			TSR_TRY(read_tensor(r, p->counter, &p->count));
		} else if (p->scalar) {
			TSR_TRY(read_scalar(r, p));
		} else {
			continue;
		}
		*any_ret = true;
		*most_ret = p->count > *most_ret ? p->count : *most_ret;
	}
	for (size_t i = 0; i < r->nparams; i++) {
		if (r->params[i].counter == SIZE_MAX && !r->params[i].scalar)
			r->params[i].count = tsr_replay_is_begun(&r->params[i]) ? *most_ret : 0;
	}
	return TSR_OK;
}

/* If others have a state, a parameter without one has taken no step. */
static void set_all(struct tsr_replaying *r, uint64_t count)
{
	const bool begun = has_state(r) && !r->options->zero_state;

	for (size_t i = 0; i < r->nparams; i++)
		r->params[i].count = !begun || tsr_replay_is_begun(&r->params[i]) ? count : 0;
	r->result->first_count = count;
}

static enum tsr_status check_count(const struct tsr_replaying *r)
{
	const struct tsr_replay_options *o = r->options;

	if (o->has_count && o->count > COUNT_MAX)
		return tsr_fail_hint(r->err, TSR_E_USAGE, TSR_HINT_COUNT,
				     "steps taken so far: found %" PRIu64
				     ", expected at most %" PRIu64,
				     o->count, COUNT_MAX);
	if (o->has_count && o->count && o->zero_state)
		return tsr_fail_hint(r->err, TSR_E_USAGE, TSR_HINT_COUNT_OR_ZERO,
				     "steps taken so far: found %" PRIu64
				     ", expected none of a state of zeros",
				     o->count);
	return TSR_OK;
}

enum tsr_status tsr_replay_read_counts(struct tsr_replaying *r)
{
	const uint64_t first = r->result->steps[0].step;
	uint64_t most;
	bool any;

	TSR_TRY(check_count(r));
	if (r->options->zero_state || r->options->has_count) {
		set_all(r, r->options->has_count ? r->options->count : 0);
		return TSR_OK;
	}
	TSR_TRY(read_recorded(r, &any, &most));
	if (!any) {
		set_all(r, has_state(r) ? first - 1 : 0);
		return TSR_OK;
	}
	r->result->first_count = most;
	if (most + 1 != first)
		return tsr_fail_hint(
			r->err, TSR_E_FORMAT, TSR_HINT_FIRST_STEP,
			"%s: step %" PRIu64
			": found gradients of this step first, expected those of step %" PRIu64
			", since %.300s has seen %" PRIu64,
			r->recording->path, first, most + 1, r->c->path, most);
	return TSR_OK;
}

/* --- Writing ----------------------------------------------------------------------------------- */

static enum tsr_status write_tensor(struct tsr_replaying *r, size_t tensor, uint64_t count)
{
	struct tsr_tensor *t = &r->c->tensors[tensor];
	struct tsr_array *a = &r->c->arrays[t->plane[0]];
	union number *n;

	TSR_TRY(TSR_ARENA_NEW(&n, 1, r->c->arena, tsr_build_nomem(r->c, r->err)));
	t->dtype = dtype_for(t->dtype, count);
	number_set(n, t->dtype, count);
	a->dtype = t->dtype;
	a->nbytes = tsr_dtype_bits(t->dtype) / 8;
	a->memory = n->bytes;
	a->coded = NULL;
	a->layout = NULL;
	a->has_crc = false;
	t->hash[0] = tsr_plane_hash(n, (size_t)a->nbytes);
	return TSR_OK;
}

/* The value is the parameters' own: tsr_parameters_place() took care of that. */
static enum tsr_status write_scalar(struct tsr_replaying *r, struct tsr_value *v, uint64_t count)
{
	const struct tsr_value *now = v->type == TSR_VALUE_INT
					      ? tsr_value_int(r->c->arena, (int64_t)count)
					      : tsr_value_float(r->c->arena, (double)count);

	if (!now)
		return tsr_build_nomem(r->c, r->err);
	*v = *now;
	return TSR_OK;
}

enum tsr_status tsr_replay_write_counts(struct tsr_replaying *r)
{
	const struct tsr_replay_step *steps;

	for (size_t i = 0; i < r->nparams; i++) {
		const struct tsr_replay_param *p = &r->params[i];

		if (p->counter != SIZE_MAX)
			TSR_TRY(write_tensor(r, p->counter, p->count));
		else if (p->scalar)
			TSR_TRY(write_scalar(r, p->scalar, p->count));
	}
	/* Update a training script's own step number, if it is the one before the recording. */
	steps = r->result->steps;
	for (size_t i = 0; i < r->c->ntrees; i++) {
		struct tsr_value *v = tsr_value_at(r->c->trees[i], "step");
		uint64_t number;

		if (v && v->type == TSR_VALUE_INT && tsr_value_get_u64(v, &number) &&
		    number == steps[0].step - 1)
			TSR_TRY(write_scalar(r, v, steps[r->result->nsteps - 1].step));
	}
	return TSR_OK;
}
