/* SPDX-License-Identifier: Apache-2.0 */
/* tersor replay: repeat optimizer steps from recorded gradients. */

#include "cli/files.h"
#include "cli/parts/parting.h"
#include "cli/operations.h"
#include "replay/replay_result.h"
#include "report/reports.h"

#define AT(field) offsetof(struct cli_replay_args, field)

#define ORDERS \
	"torch-cpu torch-cpu-fused torch-cuda-foreach torch-cuda-forloop torch-cuda-capturable " \
	"torch-cuda-fused torch-cuda-fused-double flashoptim coat bitsandbytes gefen pytorch"

static const struct cli_opt opts[] = {
	CLI_OPT("optimizer", "NAME", CLI_WORD, optimizer,
		"sgd sgdw adam adamw lion gefen muon gefen-muon",
		"sgd, sgdw, adam, adamw, lion, gefen, muon or gefen-muon (default: the "
		"recording's)"),
	CLI_OPT("lr", "X", CLI_STRING, lr, NULL, "learning rate of every step and group"),
	CLI_OPT("schedule", "FILE", CLI_STRING, schedule, "@file",
		"file of learning rates: a line STEP LR for each step"),
	CLI_OPT("betas", "B1,B2", CLI_STRING, betas, NULL, "betas of adam, adamw, lion and gefen"),
	CLI_OPT("eps", "X", CLI_STRING, eps, NULL, "eps of adam, adamw and gefen"),
	CLI_OPT("weight-decay", "X", CLI_STRING, weight_decay, NULL,
		"weight decay of every group; L2 for sgd and adam"),
	CLI_OPT_FLAG("nesterov", nesterov, "Nesterov momentum for sgd and sgdw"),
	CLI_OPT_FLAG("decouple-lr", decouple_lr,
		     "weights shrink by weight_decay * lr / initial_lr"),
	CLI_OPT("hyper", "NAME=X", CLI_LIST, hyper,
		"lr= initial_lr= beta1= beta2= eps= weight_decay= momentum= dampening= nesterov= "
		"decouple_lr= match_rms= maximize=",
		"any hyperparameter of every group: momentum, dampening, initial_lr, ..."),
	CLI_OPT("vary", "NAME=X,X...", CLI_LIST, vary,
		"lr= beta1= beta2= eps= weight_decay= momentum= dampening=",
		"also replay with these values of a hyperparameter, in one read of the gradients, "
		"and "
		"report how far that leads from what was recorded; of several options all "
		"combinations, at most 15"),
	CLI_OPT("state", "FORM", CLI_WORDS, state, "fp32 " TSR_STATE_FORMS,
		"form of the state: fp32; flash (bf16+ulp8, softsign8, sqrt8); flashoptim (the "
		"same with f16 scales); tight (bf16+ulp8, ratio8, log8); coat (bf16+ulp8, e4m3x "
		"twice); bitsandbytes (bf16+ulp8, dyn8 twice); gefen (bf16+ulp8, gefen8, "
		"blockmean, "
		"learned from the first recorded step); or bf16+ulp8 and a pair of codecs, "
		"ratio8/sqrt8 (default: the checkpoint's); several with commas are compared with "
		"FP32 side by side"),
	CLI_OPT("weights", "CODEC", CLI_STRING, codec[TSR_SLOT_WEIGHT], "@weight",
		"codec for weights"),
	CLI_OPT("momentum", "CODEC", CLI_STRING, codec[TSR_SLOT_MOMENTUM], "@momentum",
		"codec for momenta"),
	CLI_OPT("variance", "CODEC", CLI_STRING, codec[TSR_SLOT_VARIANCE], "@variance",
		"codec for variances"),
	CLI_OPT("scale", "FORMAT", CLI_WORD, scale, "e8m8 f16 f32",
		"how scales are stored: e8m8, f16 or f32 (default: e8m8, or f32 where that "
		"would let the state drift)"),
	CLI_OPT_NUMBER("group", "N", group, 1, TSR_GROUP_MAX,
		       "elements that share a scale (default: 32 to 256, by codec)"),
	CLI_OPT_NUMBER("seed", "N", seed, 0, TSR_JSON_INT_MAX,
		       "seed of the random rounding of bf16+sr<k> and fp16+sr<k> (default 0)"),
	CLI_OPT("order", "NAME", CLI_WORD, order, ORDERS,
		"order of operations (default: the recording's, else torch-cpu): PyTorch's, "
		"torch-cpu, and for sgd, adam and adamw torch-cpu-fused, torch-cuda-foreach, "
		"torch-cuda-forloop, torch-cuda-capturable, torch-cuda-fused or, before 2.11, "
		"torch-cuda-fused-double; flashoptim (implied by --state flashoptim); coat "
		"(adamw); bitsandbytes (adam, adamw); or gefen (adamw, gefen), which also has its "
		"program's codebook"),
	CLI_OPT("compat", "NAME", CLI_WORD, order, ORDERS,
		"what --order was called; pytorch is torch-cpu"),
	CLI_OPT("partition", "RULE", CLI_WORD, learning.partition, CLI_PARTITION_RULES,
		CLI_PARTITION_HELP),
	CLI_OPT_FLAG("few-bins", learning.few, CLI_FEW_HELP),
	CLI_OPT("steps", "A..B", CLI_STRING, steps, NULL,
		"replay steps A to B only; either may be left out"),
	CLI_OPT("count", "N", CLI_STRING, count, NULL,
		"steps that the state has seen (default: what the checkpoint says)"),
	CLI_OPT("state-on-disk", "DIR", CLI_STRING, state_on_disk, NULL,
		"keep the state in a nameless file in DIR, if it does not fit in memory"),
	CLI_OPT_FLAG("zero-state", zero_state,
		     "start from zero momentum and variance, at the first step"),
	CLI_OPT("on-nonfinite", "WHAT", CLI_WORD, on_nonfinite, "fail skip",
		"at a gradient with NaN or infinity: fail (default) or skip the step"),
	CLI_OPT("on-missing", "WHAT", CLI_WORD, on_missing, "skip fail",
		"at a parameter without a gradient: skip it for this step (default), as PyTorch "
		"does, or fail"),
	CLI_OPT("compare", "WITH", CLI_WORD, compare, "fp32",
		"fp32: also replay in FP32, and report how far the two diverge"),
	CLI_OPT("max-error", "FIGURE=VALUE", CLI_LIST, max_error,
		"weight-ulp= weight-nmse= weight-cosine= momentum-nmse= variance-nmse= "
		"momentum-quant= variance-quant= update-nmse= update-norm= stalled= underflow= "
		"variance-lost= update-quant=",
		"exit 1 and write nothing if a figure of any tensor is larger at any step; implies "
		"--compare fp32, as do --csv, --svg and --html"),
	CLI_OPT_FLAG(
		"audit", audit,
		"replay in FP32 and report, instead, what each codec for momenta and variances "
		"would do to the state after every step, as tersor audit does"),
	CLI_OPT("signatures", "FILE", CLI_STRING, signatures, "@report",
		"write the signatures of gradients, weights and states of every step, which "
		"tersor bisect compares, to FILE"),
	CLI_OPT_FLAG("check-numerics", check_numerics,
		     "warn about learning rates too small to move the largest weights"),
	CLI_OPT("to", "CONTAINER", CLI_WORD, to, "safetensors pt npz npy flashoptim",
		"write decoded FP32 as safetensors, pt, npz or npy; or flashoptim"),
	CLI_OPT("map", "REGEX=KIND", CLI_LIST, map, NULL,
		"treat tensors with a matching name as weight, momentum, variance or other"),
	{ 0 }
};

/* --- The command ------------------------------------------------------------------------------ */

/* Of one state, or of several side by side. */
static int report(const struct cli_cmd *cmd, const struct cli_common *common,
		  const struct tsr_replay_states *states, bool written)
{
	const struct tsr_replay *first = states->replay[0];
	struct tsr_report r = cli_report(cmd, common, NULL);

	cli_warn_notes(common, first->source);
	if (states->n) {
		tsr_json_put_bool(&r.json, "dry_run", common->dry_run);
		(states->varied ? tsr_vary_report : tsr_states_report)(states, &r);
		return cli_end_report(&r, common);
	}
	if (first->nskipped)
		cli_warn(common, "%zu of %zu steps skipped: their gradients are not finite",
			 first->nskipped, first->nsteps);
	tsr_json_put_string(&r.json, "output", common->output);
	tsr_json_put_bool(&r.json, "dry_run", common->dry_run);
	tsr_json_put_bool(&r.json, "written", written);
	tsr_replay_report(first, &r);
	return cli_end_report(&r, common);
}

static int replay(const struct cli_cmd *cmd, const struct cli_replay_args *a,
		  const struct cli_replay_parsed *parsed)
{
	const struct cli_common *common = &a->common;
	const char *const *in = common->operands.items;
	const unsigned n = common->operands.n - 1;
	struct tsr_replay *r[TSR_REPLAY_FORMS_MAX] = { NULL };
	const struct tsr_replay_states states = { parsed->nforms, parsed->forms, r, a->vary.n > 0 };
	struct cli_device used = { .ngpus = 0 };
	const unsigned *gpus;
	unsigned ngpus;
	enum tsr_status replayed;
	struct cli_work work;
	int status;

	cli_work_start(&work, common, "replaying");
	replayed = parsed->nforms ? tsr_replay_forms(in, n, in[n], &parsed->options, parsed->forms,
						     parsed->nforms, &work.run, r, &work.err)
				  : tsr_replay(in, n, in[n], common->output, &parsed->options,
					       &work.run, r, &work.err);
	cli_work_end(&work, replayed);
	if (!r[0])
		return cli_error(&work.err);
	ngpus = tsr_replay_gpus(r[0], &gpus);
	for (; used.ngpus < ngpus && used.ngpus < CLI_GPUS_MAX; used.ngpus++)
		used.gpus[used.ngpus] = gpus[used.ngpus];
	if (!common->dry_run)
		cli_say_device(common, "replayed", &used);
	status = report(cmd, common, &states,
			common->output && replayed != TSR_E_BOUND && !common->dry_run);
	for (unsigned i = 0; i < TSR_REPLAY_FORMS_MAX; i++)
		tsr_replay_free(r[i]);
	return replayed == TSR_OK ? status : cli_error(&work.err);
}

static int run(const struct cli_cmd *cmd, void *args)
{
	struct cli_replay_args *a = args;
	struct cli_replay_parsed parsed;
	const char *name = a->common.device, *reports[4];
	const bool cuda = name && strncmp(name, "cuda", 4) == 0;
	struct cli_device device; /* whose GPUs the options refer to */

	if (a->audit && (a->max_error.n || a->compare || a->check_numerics || a->common.output ||
			 a->common.dry_run))
		return cli_usage(cmd,
				 "--audit takes neither --compare, --max-error, --check-numerics, "
				 "--dry-run nor -o");
	CLI_TRY(cli_replay_parse(cmd, a, &parsed));
	if (a->signatures && (a->audit || parsed.nforms || cuda))
		return cli_usage(cmd, "--signatures is of one replay in FP32 on the CPU");
	parsed.options.signatures = a->signatures;
	if (a->audit && cuda)
		return cli_usage(cmd, "--audit runs on the CPU: leave --device %s out", name);
	if (a->audit && parsed.nforms)
		return cli_usage(cmd, "--audit replays in FP32: leave --state out");
	if (a->audit)
		CLI_TRY(cli_part_refuse(cmd, "--audit"));
	if (cuda && parsed.options.check_numerics)
		return cli_usage(cmd, "--check-numerics runs on the CPU: leave --device %s out",
				 name);
	CLI_TRY(cli_choose_device(cmd, name, false, &device));
	parsed.options.gpus = device.gpus;
	parsed.options.ngpus = device.ngpus			  ? (int)device.ngpus
			       : name && strcmp(name, "cpu") == 0 ? TSR_REPLAY_CPU
								  : TSR_REPLAY_AUTO;
	CLI_TRY(cli_check_reports(&a->common));
	CLI_TRY(cli_check_no_recording(a->common.operands.items[0]));
	parsed.options.reports = reports;
	parsed.options.nreports = cli_report_paths(&a->common, reports);
	if (a->audit)
		return cli_replay_audit(cmd, a, &parsed.options);
	return replay(cmd, a, &parsed);
}

const struct cli_cmd cmd_replay = {
	.name = "replay",
	.summary = "repeat optimizer steps from recorded gradients",
	.operands = "CKPT... RECORDING",
	.details =
		"Steps the checkpoint with the gradients that a run recorded, with its state in "
		"FP32 or compressed, and with -o writes the resulting checkpoint. --compare fp32 "
		"also replays in FP32 and reports, per step and tensor, how far the two diverge. "
		"Optimizer, hyperparameters and learning rates are the recording's unless options "
		"say otherwise. All inputs of the checkpoint come first, the recording last. The "
		"result does not depend on threads or processor; --device cuda is the first GPU.",
	.examples =
		"  tersor replay checkpoint.pt recording -o after.pt\n"
		"  tersor replay checkpoint.pt recording --state flash --compare fp32\n"
		"  tersor replay checkpoint.pt recording --state flash,tight,coat\n"
		"  tersor replay checkpoint.pt recording --vary lr=1e-4,3e-4,1e-3\n"
		"  tersor replay packed.safetensors recording -o after.safetensors\n"
		"  tersor replay checkpoint.pt recording --state flash --max-error update-nmse=1\n",
	.opts = opts,
	.takes = CLI_PARTS | CLI_WRITES | CLI_READS | CLI_DRAWS | CLI_COMPUTES | CLI_WORKS |
		 CLI_REPORTS,
	.args_nbytes = sizeof(struct cli_replay_args),
	.run = run,
};
