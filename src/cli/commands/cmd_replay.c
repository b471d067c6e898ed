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
	"torch-cuda-capturable-forloop torch-cuda-fused torch-cuda-fused-double flashoptim coat " \
	"bitsandbytes gefen pytorch-optimizer pytorch"

static const struct cli_opt opts[] = {
	CLI_OPT("optimizer", "NAME", CLI_WORD, optimizer,
		"sgd sgdw adam adamw lion gefen muon gefen-muon soap"),
	CLI_OPT_REAL("lr", "X", lr, 0, 0),
	CLI_OPT("schedule", "FILE", CLI_STRING, schedule, "@file"),
	CLI_OPT("betas", "B1,B2", CLI_STRING, betas, NULL),
	CLI_OPT_REAL("eps", "X", eps, 0, 0),
	CLI_OPT_REAL("weight-decay", "X", weight_decay, 0, 0),
	CLI_OPT("nesterov", NULL, CLI_FLAG, nesterov, NULL),
	CLI_OPT("decouple-lr", NULL, CLI_FLAG, decouple_lr, NULL),
	CLI_OPT("hyper", "NAME=X", CLI_LIST, hyper,
		"lr= initial_lr= beta1= beta2= eps= weight_decay= momentum= dampening= nesterov= "
		"decouple_lr= match_rms= maximize= amsgrad= tensor_lr= shampoo_beta= "
		"precondition_frequency= max_precond_dim= normalize_grads= correct_bias="),
	CLI_OPT("vary", "NAME=X,X...", CLI_LIST, vary,
		"lr= beta1= beta2= eps= weight_decay= momentum= dampening=",
		.excludes = "state weights momentum variance audit check-numerics output"),
	CLI_OPT("state", "FORM", CLI_WORDS, state, "fp32 " TSR_STATE_FORMS),
	CLI_OPT("weights", "CODEC", CLI_STRING, codec[TSR_SLOT_WEIGHT], "@weight"),
	CLI_OPT("momentum", "CODEC", CLI_STRING, codec[TSR_SLOT_MOMENTUM], "@momentum"),
	CLI_OPT("variance", "CODEC", CLI_STRING, codec[TSR_SLOT_VARIANCE], "@variance"),
	CLI_OPT("scale", "FORMAT", CLI_WORD, scale, "e8m8 f16 f32"),
	CLI_OPT_NUMBER("group", "N", group, 1, TSR_GROUP_MAX),
	CLI_OPT_NUMBER("seed", "N", seed, 0, TSR_JSON_INT_MAX),
	CLI_OPT("order", "NAME", CLI_WORD, order, ORDERS),
	CLI_OPT("compat", "NAME", CLI_WORD, order, ORDERS),
	CLI_OPT("partition", "RULE", CLI_WORD, learning.partition, CLI_PARTITION_RULES),
	CLI_OPT("few-bins", NULL, CLI_FLAG, learning.few, NULL),
	CLI_OPT("steps", "A..B", CLI_STRING, steps, NULL),
	CLI_OPT_NUMBER("count", "N", count, 0, TSR_JSON_INT_MAX),
	CLI_OPT("state-on-disk", "DIR", CLI_STRING, state_on_disk, NULL),
	CLI_OPT("zero-state", NULL, CLI_FLAG, zero_state, NULL),
	CLI_OPT("on-nonfinite", "WHAT", CLI_WORD, on_nonfinite, "fail skip"),
	CLI_OPT("on-missing", "WHAT", CLI_WORD, on_missing, "skip fail"),
	CLI_OPT("compare", "WITH", CLI_WORD, compare, "fp32"),
	CLI_OPT("max-error", "FIGURE=VALUE", CLI_LIST, max_error,
		"weight-ulp= weight-nmse= weight-cosine= momentum-nmse= variance-nmse= "
		"momentum-quant= variance-quant= update-nmse= update-norm= stalled= underflow= "
		"variance-lost= update-quant="),
	CLI_OPT("audit", NULL, CLI_FLAG, audit, NULL,
		.excludes = "compare max-error check-numerics output dry-run"),
	CLI_OPT("signatures", "FILE", CLI_STRING, signatures, "@report", .excludes = "audit vary"),
	CLI_OPT_KEY("force", 'f', NULL, CLI_FLAG, common.force, NULL, .needs = "output signatures"),
	CLI_OPT("check-numerics", NULL, CLI_FLAG, check_numerics, NULL),
	CLI_OPT("to", "CONTAINER", CLI_WORD, to, "safetensors pt npz npy flashoptim",
		.needs = "output"),
	CLI_OPT("map", "REGEX=KIND", CLI_LIST, map, NULL),
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
		tsr_states_report(states, &r);
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
	const char *name = a->common.device, *reports[CLI_NREPORTS];
	const char *on_cpu = cli_given(&a->common, "audit vary check-numerics signatures");
	struct cli_device device; /* whose GPUs the options refer to */

	CLI_TRY(cli_replay_parse(cmd, a, &parsed));
	parsed.options.signatures = a->signatures;
	if (on_cpu && name && strncmp(name, "cuda", 4) == 0)
		return cli_usage(cmd, "--%s runs on the CPU: leave --device %s out", on_cpu, name);
	if (a->signatures && parsed.nforms)
		return cli_usage(cmd, "--signatures is of one replay: name one --state");
	if (a->audit && parsed.nforms)
		return cli_usage(cmd, "--audit replays in FP32: leave --state out");
	if (a->audit)
		CLI_TRY(cli_part_refuse(cmd, "--audit"));
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

TSR_EMBED(help_replay, "man/help/replay.txt");

const struct cli_cmd cmd_replay = {
	.name = "replay",
	.summary = "repeat optimizer steps from recorded gradients",
	.operands = "CKPT... RECORDING",
	.help = help_replay,
	.opts = opts,
	.takes = CLI_PARTS | CLI_WRITES | CLI_READS | CLI_DRAWS | CLI_COMPUTES | CLI_WORKS |
		 CLI_REPORTS,
	.args_nbytes = sizeof(struct cli_replay_args),
	.run = run,
};
