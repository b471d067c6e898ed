/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects that are no plain values, which an output can carry: their pickle's instructions are written
 * back as they were, and nothing carries them out here.  Which ones is for the reader's policy to say;
 * without one, those are carried that frameworks put into every checkpoint.
 */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "ckpt/build.h"
#include "format/value_walk.h"
#include "text/map.h"
#include "text/text.h"
#include "torch/torch_archive.h"

/* --- What frameworks save --------------------------------------------------------------------- */

/*
 * "MODULE NAME".  A class is here because its framework saves an object of it with every checkpoint, or
 * in a file beside it, and because making one does no more than keep the values.
 */
static const char *const classes[] = {
	/* DeepSpeed: `loss_scaler` and `param_slice_mappings` of every optimizer file. */
	"deepspeed.runtime.fp16.loss_scaler DynamicLossScaler",
	"deepspeed.runtime.fp16.loss_scaler LossScaler",
	"deepspeed.utils.tensor_fragment fragment_address",
	/* transformers: training_args.bin of every Trainer checkpoint. */
	"accelerate.state PartialState",
	"accelerate.utils.dataclasses DeepSpeedPlugin",
	"transformers.integrations.deepspeed HfDeepSpeedConfig",
	"transformers.integrations.deepspeed HfTrainerDeepSpeedConfig",
	"transformers.trainer_pt_utils AcceleratorConfig",
	"transformers.training_args TrainingArguments",
	"transformers.training_args_seq2seq Seq2SeqTrainingArguments",
	/* TRL: its subclasses of TrainingArguments, in the same file. */
	"trl.trainer.dpo_config DPOConfig",
	"trl.trainer.grpo_config GRPOConfig",
	"trl.trainer.kto_config KTOConfig",
	"trl.trainer.reward_config RewardConfig",
	"trl.trainer.sft_config SFTConfig",
	/* OmegaConf (Hydra, fairseq, NeMo): the configuration, as hyper_parameters of Lightning. */
	"omegaconf.base ContainerMetadata",
	"omegaconf.base Metadata",
	"omegaconf.dictconfig DictConfig",
	"omegaconf.listconfig ListConfig",
	"omegaconf.nodes AnyNode",
	"omegaconf.nodes BooleanNode",
	"omegaconf.nodes BytesNode",
	"omegaconf.nodes EnumNode",
	"omegaconf.nodes FloatNode",
	"omegaconf.nodes IntegerNode",
	"omegaconf.nodes PathNode",
	"omegaconf.nodes StringNode",
	"omegaconf.nodes UnionNode",
	"typing Any",
	/* Lightning: save_hyperparameters() of a class with this attribute dictionary. */
	"lightning.fabric.utilities.data AttributeDict",
	"lightning_fabric.utilities.data AttributeDict",
	"pytorch_lightning.utilities.parsing AttributeDict",
};

/* Enumerations, whose members are Enum(value) or a global of their own. */
static const char *const enums[] = {
	/* DeepSpeed: `zero_stage` of every optimizer file. */
	"deepspeed.runtime.zero.config ZeroStageEnum",
	"deepspeed.runtime.zero.offload_config OffloadDeviceEnum",
	/* transformers: training_args.bin. */
	"accelerate.utils.dataclasses DistributedType",
	"transformers.debug_utils DebugOption",
	"transformers.trainer_utils EvaluationStrategy",
	"transformers.trainer_utils FSDPOption",
	"transformers.trainer_utils HubStrategy",
	"transformers.trainer_utils IntervalStrategy",
	"transformers.trainer_utils SaveStrategy",
	"transformers.trainer_utils SchedulerType",
	"transformers.training_args OptimizerNames",
	"transformers.training_args ParallelMode",
	/* Megatron-LM: `args` and `rerun_state_machine` of every checkpoint. */
	"megatron.core.enums Fp4Recipe",
	"megatron.core.enums Fp8Recipe",
	"megatron.core.enums ModelType",
	"megatron.core.rerun_state_machine RerunDiagnostic",
	"megatron.core.rerun_state_machine RerunMode",
	"megatron.core.rerun_state_machine RerunState",
	"megatron.core.transformer.enums AttnBackend",
	"megatron.core.transformer.enums AttnMaskType",
	"megatron.core.transformer.enums AttnType",
	"megatron.core.transformer.enums CudaGraphModule",
	"megatron.core.transformer.enums CudaGraphScope",
	"megatron.core.transformer.enums LayerType",
	"megatron.core.transformer.enums ModelType",
	"signal Signals",
};

/* Whether the first @n bytes of a name and its module are an entry of a table. */
static bool is_in(const char *const *table, size_t nentries, const struct tsr_value *global,
		  size_t n)
{
	const char *module = global->global.module, *name = global->global.name;
	const size_t len = strlen(module);

	for (size_t i = 0; i < nentries; i++) {
		const char *entry = table[i];

		if (strncmp(entry, module, len) == 0 && entry[len] == ' ' &&
		    strncmp(entry + len + 1, name, n) == 0 && !entry[len + 1 + n])
			return true;
	}
	return false;
}

#define IS_IN(table, global, n) is_in(table, sizeof(table) / sizeof(*(table)), global, n)

/* A member of an enumeration is no class: what is called must be one. */
static bool is_known(const struct tsr_value *global, bool called)
{
	const char *name = global->global.name, *dot = strrchr(name, '.');

	return IS_IN(classes, global, strlen(name)) || IS_IN(enums, global, strlen(name)) ||
	       (dot && !called && IS_IN(enums, global, (size_t)(dot - name)));
}

/* --- The policy --------------------------------------------------------------------------------- */

enum tsr_torch_verdict tsr_torch_judge(const struct tsr_checkpoint *c, const struct tsr_value *v)
{
	const struct tsr_value *global = v;
	bool known;

	while (global->type == TSR_VALUE_CALL)
		global = global->call.callee;
	/* What was left out can be neither called nor kept. */
	if (global->type == TSR_VALUE_NONE)
		return TSR_TORCH_DROP;
	if (global->type != TSR_VALUE_GLOBAL || tsr_torch_is_tensor_like(v, global))
		return TSR_TORCH_REFUSE;
	if (tsr_torch_is_harmless(global) && (v == global || v->call.callee == global))
		return TSR_TORCH_KEEP;
	known = v == global ? is_known(v, false)
			    : v->call.callee == global && is_known(global, true);
	switch (c->opaque) {
	case TSR_OPAQUE_CARRY:
		return TSR_TORCH_KEEP;
	case TSR_OPAQUE_DROP:
		return TSR_TORCH_DROP;
	case TSR_OPAQUE_REFUSE:
		return TSR_TORCH_REFUSE;
	case TSR_OPAQUE_KNOWN:
		break;
	}
	return known ? TSR_TORCH_KEEP : TSR_TORCH_REFUSE;
}

/* --- What is carried ------------------------------------------------------------------------------ */

/* How much of the names a note shows. */
#define NAMES_NBYTES 600u

static bool is_same(const void *item, const void *key)
{
	const struct tsr_value *a = *(const struct tsr_value *const *)item, *b = key;

	return tsr_value_is_global(b, a->global.module, a->global.name);
}

/* Add a global to the names; false when out of memory. */
static bool add_name(struct tsr_map *seen, const struct tsr_value *global, struct tsr_text *names)
{
	const char *module = global->global.module, *name = global->global.name;
	const uint64_t hash = tsr_map_hash(seen, module, strlen(module), 0) ^
			      tsr_map_hash(seen, name, strlen(name), 1);
	const bool builtin = strcmp(module, "__builtin__") == 0;
	const bool fits = names->nbytes + strlen(module) + strlen(name) < NAMES_NBYTES;
	bool is_new;
	const struct tsr_value **item = tsr_map_put(seen, hash, global, &is_new);

	if (!item || !is_new)
		return item != NULL;
	*item = global;
	if (fits)
		tsr_text_printf(names, "%s%s.%s", seen->n > 1 ? ", " : "",
				builtin ? "builtins" : module, name);
	return !names->failed;
}

static bool collect(struct tsr_value_walk *w, struct tsr_value *root, struct tsr_map *seen,
		    struct tsr_text *names)
{
	struct tsr_value *v;
	bool ok = true;

	w->root = root;
	w->n = 0;
	w->mark = TSR_MARK_OPAQUE;
	while (ok && (v = tsr_value_walk_next(w)) != NULL) {
		if (v->type == TSR_VALUE_GLOBAL && !tsr_torch_is_harmless(v))
			ok = add_name(seen, v, names);
	}
	return ok;
}

enum tsr_status tsr_torch_name_carried(struct tsr_checkpoint *c, struct tsr_err *err)
{
	struct tsr_map seen = { .item_nbytes = sizeof(struct tsr_value *), .same = is_same };
	struct tsr_value_walk *w = calloc(1, sizeof(*w));
	struct tsr_text names = { 0 };
	enum tsr_status status = TSR_OK;
	bool ok = w != NULL;

	for (size_t i = 0; ok && i < c->ntrees; i++)
		ok = collect(w, c->trees[i], &seen, &names);
	if (!ok)
		status = tsr_fail_nomem(err, c->path);
	else if (seen.n)
		status = tsr_build_note(
			c, err,
			"%.200s: carries Python objects as they are; Python imports "
			"and calls what makes them where weights_only=False loads "
			"them: %s (%zu in all)",
			c->path, names.bytes ? names.bytes : "...", seen.n);
	free(w);
	tsr_text_free(&names);
	tsr_map_free(&seen);
	return status;
}
