/* SPDX-License-Identifier: Apache-2.0 */
/* DeepSpeed's universal checkpoints: one directory per parameter with its weight and states. */
#include "base/fail.h"
#include "layouts/flat_join.h"
#include "layouts/layouts.h"
#include "layouts/folder.h"
#include "layouts/zero.h"

/* --- One parameter ------------------------------------------------------------------------------ */

/* The tensor of a file, which may be flat, in the parameter's shape. */
static enum tsr_status shape_tensor(const struct tsr_zero *z, const struct tsr_zero_param *p,
				    const char *file, const struct tsr_value *v, size_t *array_ret)
{
	TSR_SCOPED(tsr_flat_join_free)
	struct tsr_flat_join j = { .c = z->d->c, .name = p->name, .err = z->d->err };
	const uint64_t found = j.c->arrays[v->tensor.array].numel;

	if (found != p->numel)
		return tsr_fail(z->d->err, TSR_E_FORMAT,
				"%s: zero/%.200s/%.100s: found %" PRIu64
				" elements, expected %" PRIu64 " as param_shapes says",
				z->d->path, p->name, file, found, p->numel);
	j.dtype = j.c->arrays[v->tensor.array].dtype;
	TSR_TRY(found ? tsr_flat_join_add(&j, v->tensor.array, 0, found) : TSR_OK);
	return tsr_flat_join_finish(&j, p->rank, p->shape, array_ret);
}

static enum tsr_status read_file(const struct tsr_zero *z, struct tsr_zero_param *p,
				 struct tsr_folder *d, const char *file)
{
	struct tsr_arena *arena = z->d->c->arena;
	const size_t stem = strlen(file) - strlen(".pt");
	char *field = tsr_arena_copy(arena, file, stem);
	struct tsr_value *v = NULL, *param;
	size_t array = 0;

	if (!field)
		return tsr_build_nomem(z->d->c, z->d->err);
	TSR_TRY(tsr_folder_torch(d, file, &v));
	/* A value, or a dict with it and how ranks divided it. */
	param = tsr_value_at(v, "param");
	v = param ? param : v;
	if (v->type == TSR_VALUE_TENSOR && strcmp(field, "step") != 0) {
		TSR_TRY(shape_tensor(z, p, file, v, &array));
		if (strcmp(field, "fp32") == 0) {
			p->weight = array;
			return TSR_OK;
		}
		v = tsr_value_tensor(arena, array);
	}
	return tsr_folder_set(z->d, p->state, field, v);
}

/* What one is read for. */
struct reading {
	struct tsr_zero *z;
	struct tsr_zero_param *p;
};

static enum tsr_status read_param(struct tsr_folder *d, void *ctx)
{
	const struct reading *r = ctx;

	if (!tsr_folder_has(d, "fp32.pt"))
		return tsr_fail(d->err, TSR_E_FORMAT, "%s: found no fp32.pt", d->path);
	for (size_t i = 0; i < d->names.n; i++) {
		if (tsr_dir_name_ends_with(d->names.names[i], ".pt"))
			TSR_TRY(read_file(r->z, r->p, d, d->names.names[i]));
	}
	return TSR_OK;
}

/* --- All parameters ----------------------------------------------------------------------------- */

/* Whether a directory has only the FP32 form of a tensor that the model file has itself. */
static bool is_copy(const struct tsr_zero *z, const struct tsr_folder *zero, const char *name)
{
	const struct tsr_value *module = tsr_value_at(z->model[0], "module");
	const struct tsr_value *v = tsr_value_at(module, name);
	TSR_SCOPED(tsr_folder_leave) struct tsr_folder d = { 0 };

	return v && v->type == TSR_VALUE_TENSOR && !z->divided &&
	       tsr_folder_enter(zero, name, &d) == TSR_OK && d.names.n == 1 &&
	       tsr_folder_has(&d, "fp32.pt");
}

/* ds_to_universal adds buffers and frozen parameters, widened; the model file has them as they were. */
static enum tsr_status skip_copies(const struct tsr_zero *z, struct tsr_folder *zero)
{
	const char *copy = NULL;
	size_t n = 0;

	for (size_t i = 0; i < zero->names.n; i++) {
		if (zero->taken[i] || !is_copy(z, zero, zero->names.names[i]))
			continue;
		zero->taken[i] = true;
		copy = zero->names.names[i];
		n++;
	}
	if (!n)
		return TSR_OK;
	return tsr_build_remark(
		z->d->c, z->d->err,
		"%.200s: %.100s and its like (%zu in all) are FP32 copies of what the "
		"model file has, and left out",
		zero->path, copy, n);
}

static enum tsr_status read_params(struct tsr_folder *zero, void *ctx)
{
	struct tsr_zero *z = ctx;

	for (size_t i = 0; i < z->nparams; i++) {
		struct reading r = { z, &z->params[i] };

		TSR_TRY(tsr_folder_within(zero, z->params[i].name, read_param, &r));
	}
	if (tsr_folder_has(zero, "optimizer_state.pt"))
		TSR_TRY(tsr_folder_torch(zero, "optimizer_state.pt", &z->common));
	return skip_copies(z, zero);
}

bool tsr_universal_is(const struct tsr_folder *d)
{
	TSR_OWNED(free) char *path = tsr_path_join(d->path, "zero");

	return path && tsr_dir_is(path);
}

enum tsr_status tsr_universal_read(struct tsr_folder *d)
{
	TSR_SCOPED(tsr_zero_free) struct tsr_zero z = { 0 };

	TSR_TRY(tsr_zero_read(d, true, &z));
	TSR_TRY(tsr_folder_within(d, "zero", read_params, &z));
	z.narrays = d->c->narrays - z.first;
	TSR_TRY(tsr_zero_put(&z));
	return tsr_keep_reached(d->c, z.first, d->root, d->err);
}
