/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Classes and functions that a pickle may name.  None is ever called; those that only make plain
 * values are kept as they are, so that they can be written back, and all others are refused.
 */
#include <string.h>

#include "text/bytes.h"
#include "torch/torch_archive.h"

/* By their modules; names of builtins are as protocol 2 has them. */
struct globals {
	const char *module, *names;
};

#define PATHS "Path PosixPath PurePath PurePosixPath PureWindowsPath WindowsPath"
#define DISTRIBUTED "torch.distributed."

static const struct globals harmless[] = {
	{ "__builtin__",
	  "bool bytearray bytes complex dict float frozenset int list long range set "
	  "slice str tuple unicode xrange" },
	{ "_codecs", "encode" },
	{ "argparse", "Namespace" },
	{ "collections", "Counter OrderedDict defaultdict" },
	{ "datetime", "date datetime time timedelta timezone" },
	{ "decimal", "Decimal" },
	{ "fractions", "Fraction" },
	{ "numpy", "dtype ndarray" },
	{ "numpy._core.multiarray", "_reconstruct scalar" },
	{ "numpy.core.multiarray", "_reconstruct scalar" },
	{ "pathlib", PATHS },
	{ "pathlib._local", PATHS },
	{ "torch", "Size device" },
	{ DISTRIBUTED "_mesh_layout", "_FlatLayout _MeshLayout" },
	{ DISTRIBUTED "device_mesh", "DeviceMesh" },
	{ DISTRIBUTED "tensor._dtensor_spec", "DTensorSpec ShardOrderEntry TensorMeta" },
	{ DISTRIBUTED "tensor.placement_types", "Partial Replicate Shard _StridedShard" },
	{ "torch.serialization", "_get_layout" },
};

bool tsr_torch_is_harmless(const struct tsr_value *global)
{
	for (size_t i = 0; i < sizeof(harmless) / sizeof(*harmless); i++) {
		if (strcmp(global->global.module, harmless[i].module) == 0 &&
		    tsr_is_word(harmless[i].names, global->global.name))
			return true;
	}
	return tsr_torch_is_wrapper_class(global) || (strcmp(global->global.module, "torch") == 0 &&
						      tsr_torch_is_dtype(global->global.name));
}

/* What runs programs or loads code: some builtins, and all functions of modules. */
bool tsr_torch_is_dangerous(const struct tsr_value *global)
{
	static const char builtins[] = "__import__ compile eval exec execfile open";
	static const char modules[] =
		"ctypes importlib nt os posix pty runpy shutil socket subprocess";

	return strcmp(global->global.module, "__builtin__") == 0
		       ? tsr_is_word(builtins, global->global.name)
		       : tsr_is_word(modules, global->global.module);
}

/* --- Refusals ------------------------------------------------------------------------------- */

/* Tensors that are not plain. */
static const struct {
	const char *module, *name, *kind;
} kinds[] = {
	{ "torch._utils", "_rebuild_sparse_tensor", "a sparse tensor" },
	{ "torch._utils", "_rebuild_sparse_csr_tensor", "a sparse (csr) tensor" },
	{ "torch._utils", "_rebuild_nested_tensor", "a nested tensor" },
	{ "torch._utils", "_rebuild_qtensor", "a quantized tensor" },
	{ "torch._utils", "_rebuild_meta_tensor_no_storage", "a meta tensor, which has no data" },
	{ "torch._utils", "_rebuild_device_tensor_from_numpy", "a tensor of another device" },
	{ "torch._utils", "_rebuild_device_tensor_from_cpu_tensor", "a tensor of another device" },
	{ "torch._utils", "_rebuild_wrapper_subclass", "a wrapper subclass of tensor" },
	{ "torch._tensor", "_rebuild_from_type_v2", "a tensor subclass, or one with attributes" },
};

static const char *kind_of(const struct tsr_value *global)
{
	if (tsr_torch_is_wrapper_class(global))
		return "a tensor subclass";
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		if (tsr_value_is_global(global, kinds[i].module, kinds[i].name))
			return kinds[i].kind;
	}
	return NULL;
}

/* Whether an object looks like a torch.nn.Module. */
static bool is_module(const struct tsr_value *v, const struct tsr_value *global)
{
	const struct tsr_value *state = v->type == TSR_VALUE_CALL ? v->call.state : NULL;

	return strncmp(global->global.module, "torch.nn.modules.", 17) == 0 ||
	       tsr_value_at(state, "_parameters") || tsr_value_at(state, "_modules");
}

bool tsr_torch_is_tensor_like(const struct tsr_value *v, const struct tsr_value *global)
{
	return kind_of(global) || is_module(v, global);
}

/* The global that is called first, where the result of a call is called again. */
static const struct tsr_value *callee_of(const struct tsr_value *v)
{
	while (v->type == TSR_VALUE_CALL)
		v = v->call.callee;
	return v;
}

enum tsr_status tsr_torch_refuse(const struct tsr_torch_archive *a, const char *at,
				 const struct tsr_value *v)
{
	const struct tsr_value *global = callee_of(v), *subclass = tsr_torch_subclass(v);
	const char *module, *name, *kind;
	bool builtin;

	/* The callee may be a call that was made a tensor already. */
	if (global->type != TSR_VALUE_GLOBAL)
		return tsr_torch_fail(a, TSR_E_UNSUPPORTED, at,
				      "the callee of a call is neither a class nor a function; "
				      "nothing was executed");
	module = global->global.module;
	name = global->global.name;
	builtin = strcmp(module, "__builtin__") == 0;
	kind = kind_of(global);
	if (subclass)
		return tsr_torch_fail(a, TSR_E_UNSUPPORTED, at,
				      "found a tensor subclass, %s.%s, expected a plain tensor; "
				      "nothing was executed",
				      subclass->global.module, subclass->global.name);
	if (kind)
		return tsr_torch_fail(
			a, TSR_E_UNSUPPORTED, at,
			"found %s (%s.%s), expected a plain one; nothing was executed", kind,
			module, name);
	if (is_module(v, global))
		return tsr_torch_fail(a, TSR_E_UNSUPPORTED, at,
				      "found an object of %s.%s: a whole module was pickled; save "
				      "its state_dict() instead; nothing was executed",
				      module, name);
	if (a->c->opaque == TSR_OPAQUE_CARRY && tsr_torch_is_dangerous(global))
		return tsr_torch_fail(a, TSR_E_UNSUPPORTED, at,
				      "found %s%s.%s, which runs code wherever the file is loaded; "
				      "nothing was executed, and it is not carried",
				      v->type == TSR_VALUE_CALL ? "a call of " : "",
				      builtin ? "builtins" : module, name);
	tsr_torch_fail(
		a, TSR_E_UNSUPPORTED, at,
		"found %s%s.%s%s%s%s, which is not known to be a plain value; nothing was executed",
		v->type == TSR_VALUE_CALL ? "a call of " : "", module, name,
		builtin ? " (builtins." : "", builtin ? name : "", builtin ? ")" : "");
	if (a->err)
		a->err->hint = TSR_HINT_OPAQUE;
	return TSR_E_UNSUPPORTED;
}
