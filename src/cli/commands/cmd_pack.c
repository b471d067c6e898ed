/* SPDX-License-Identifier: Apache-2.0 */
/* tersor pack: FP32 checkpoints into packed files. */
#include <math.h>
#include <sys/stat.h>

#include "cli/operations.h"
#include "cli/files.h"
#include "cli/parts/parting.h"
#include "report/checkpoints/checkpoint_reports.h"

struct args {
	struct cli_common common;
	const char *weights, *momentum, *variance, *other, *scale, *compat, *model;
	const char *state, *codebook_from;
	struct cli_learning learning;
	struct cli_choosing choosing;
	uint64_t group, seed, min_elements;
	struct cli_list keep, map, max_error;
	struct cli_optional entropy;
	const char *delta, *only, *as;
	uint64_t max_chain;
	bool strict;
};

#define AT(field) offsetof(struct args, field)

/* Those that choose codecs. */
#define CODEC_OPTIONS \
	"weights state momentum variance other scale compat codebook-from auto max-bytes group " \
	"seed " \
	"min-elements keep map max-error"

static const struct cli_opt opts[] = {
	CLI_OPT("weights", "CODEC", CLI_STRING, weights, "@weight"),
	CLI_OPT("state", "FORM", CLI_WORD, state, TSR_STATE_FORMS, .excludes = "auto max-bytes"),
	CLI_OPT("momentum", "CODEC", CLI_STRING, momentum, "@momentum",
		.excludes = "auto max-bytes state=gefen"),
	CLI_OPT("variance", "CODEC", CLI_STRING, variance, "@variance",
		.excludes = "auto max-bytes state=gefen"),
	CLI_OPT("other", "CODEC", CLI_STRING, other, "@other"),
	CLI_OPT_NUMBER("min-elements", "N", min_elements, 1, TSR_JSON_INT_MAX),
	CLI_OPT("scale", "FORMAT", CLI_WORD, scale, "e8m8 f16 f32", .excludes = "state=gefen"),
	CLI_OPT_NUMBER("group", "N", group, 1, TSR_GROUP_MAX, .excludes = "state=gefen"),
	CLI_OPT_NUMBER("seed", "N", seed, 0, TSR_JSON_INT_MAX),
	CLI_OPT("keep", "REGEX", CLI_LIST, keep, NULL),
	CLI_OPT("map", "REGEX=KIND", CLI_LIST, map, NULL),
	CLI_OPT("max-error", "METRIC=VALUE", CLI_LIST, max_error,
		"abs= ulp= rel= nmse= cosine= update-nmse= weight-step="),
	CLI_OPT_REAL("auto", "BOUND", choosing.bound, 0, INFINITY, .excludes = "max-bytes"),
	CLI_OPT_NUMBER("max-bytes", "SIZE", choosing.max_bytes, 1, TSR_JSON_INT_MAX),
	CLI_OPT("auto-codecs", "LIST", CLI_STRING, choosing.codecs, "@other",
		.needs = "auto max-bytes"),
	CLI_OPT("strict", NULL, CLI_FLAG, strict, NULL),
	CLI_OPT("model", "FILE", CLI_STRING, model, "@file"),
	CLI_OPT("entropy", "WHICH", CLI_OPTIONAL, entropy, "all states"),
	CLI_OPT("delta", "BASE", CLI_STRING, delta, "@file"),
	CLI_OPT("only", "PART", CLI_WORD, only, "weights", .needs = "delta",
		.excludes = CODEC_OPTIONS " model max-shard-size"),
	CLI_OPT("as", "DTYPE", CLI_WORD, as, "bf16 f16 f32", .needs = "only=weights"),
	CLI_OPT_NUMBER("max-chain", "N", max_chain, 1, TSR_CHAIN_MAX, .needs = "delta"),
	CLI_OPT("codebook-from", "RECORDING", CLI_STRING, codebook_from, "@file",
		.needs = "state=gefen"),
	CLI_OPT("partition", "RULE", CLI_WORD, learning.partition, CLI_PARTITION_RULES,
		.needs = "state=gefen"),
	CLI_OPT("few-bins", NULL, CLI_FLAG, learning.few, NULL, .needs = "state=gefen"),
	CLI_OPT("compat", "NAME", CLI_WORD, compat, "flashoptim gefen",
		.excludes = "auto max-bytes"),
	{ 0 }
};

/* What does not go together, besides what the options' rows say. */
static int check(const struct cli_cmd *cmd, const struct args *a)
{
	const bool gefen = a->state && strcmp(a->state, "gefen") == 0;
	const bool as_gefen = a->compat && strcmp(a->compat, "gefen") == 0;
	const bool folder = cli_packs_directory(&a->common);
	const bool recording = tsr_recording_probe(a->common.operands.items[0]);
	const struct {
		bool holds;
		const char *words;
	} misuses[] = {
		{ as_gefen && !gefen, "--compat gefen needs --state gefen" },
		{ gefen && a->compat && !as_gefen,
		  "--state gefen does not go with --compat flashoptim" },
		{ a->choosing.max_bytes && folder,
		  "--max-bytes is for one packed file; in a directory every file has its own size, "
		  "and --auto chooses for each" },
		{ a->model && folder, "--model is for one packed file; in a directory every model "
				      "has its weights in a file of their own" },
		{ a->only && folder, "--only weights does not go with a directory" },
		{ a->delta && recording, "--delta is for checkpoints, not for a recording" },
	};

	for (size_t i = 0; i < sizeof(misuses) / sizeof(*misuses); i++) {
		if (misuses[i].holds)
			return cli_usage(cmd, "%s", misuses[i].words);
	}
	return CLI_OK;
}

/* The options' codings into @o. */
static int parse_codings(const struct cli_cmd *cmd, const struct args *a,
			 struct tsr_pack_options *o, struct tsr_choice_options *choice)
{
	const struct {
		const char *name;
		unsigned kinds;
		struct tsr_coding *coding;
	} choices[] = {
		{ a->weights, TSR_KIND_WEIGHT, &o->weight },
		{ a->momentum, TSR_KIND_MOMENTUM, &o->momentum },
		{ a->variance, TSR_KIND_VARIANCE, &o->variance },
		{ a->other, TSR_KIND_WEIGHT | TSR_KIND_MOMENTUM | TSR_KIND_VARIANCE, &o->other },
	};
	const bool flashoptim = (a->compat && strcmp(a->compat, "flashoptim") == 0) ||
				(a->state && strcmp(a->state, "flashoptim") == 0);
	bool had = false, refused = false;
	enum tsr_scale scale = flashoptim ? TSR_SCALE_F16 : TSR_SCALE_E8M8;

	if (a->scale)
		tsr_scale_find(a->scale, &scale);
	if (flashoptim && scale != TSR_SCALE_F16)
		return cli_usage(cmd, "--compat flashoptim needs --scale f16");
	if (a->state)
		CLI_TRY(cli_parse_state(cmd, a->state, &o->momentum, &o->variance));
	for (unsigned i = 0; i < sizeof(choices) / sizeof(*choices); i++) {
		struct tsr_coding *to = choices[i].coding;

		if (choices[i].name)
			CLI_TRY(cli_parse_codec(cmd, choices[i].name, choices[i].kinds,
						&to->codec));
		if (!to->codec)
			continue;
		*to = tsr_coding_with(to->codec, scale, (uint32_t)a->group);
		*(to->scale == scale ? &had : &refused) |= to->codec->grouped;
	}
	if (a->scale && refused && !had)
		return cli_usage(cmd, "--scale %s needs a codec with such scales", a->scale);
	if (a->seed && !o->weight.codec->stochastic &&
	    !(o->other.codec && o->other.codec->stochastic))
		return cli_usage(cmd, "--seed needs --weights bf16+sr<k> or fp16+sr<k>");
	o->weight.seed = o->other.seed = a->seed;
	if (cli_given(&a->common, "auto max-bytes")) {
		CLI_TRY(cli_parse_choosing(cmd, &a->choosing, scale, (uint32_t)a->group, a->weights,
					   choice));
		o->choice = choice;
	}
	if (a->min_elements)
		o->min_elements = a->min_elements;
	return CLI_OK;
}

/* --- Reports -------------------------------------------------------------------------------- */

static void warn(const struct cli_common *common, const struct tsr_packing *p)
{
	const char *path = p->source->path;
	char reason[120];
	uint64_t underflow = 0, exposed = 0;
	bool narrow = true; /* the scales are not why */
	const struct tsr_lost lost = tsr_lost_in_packing(p);

	cli_warn_notes(common, p->source);
	cli_warn_updates(common, path, &lost);
	for (size_t i = 0; i < p->source->ntensors; i++) {
		underflow += p->tensors[i].report.scale_underflow;
		exposed += p->tensors[i].update.exposed;
		narrow = narrow &&
			 (!p->tensors[i].update.exposed || p->source->tensors[i].dtype != TSR_F32);
		if (p->tensors[i].raw == TSR_RAW_NO || p->tensors[i].raw >= TSR_RAW_SMALL)
			continue;
		tsr_raw_reason_text(&p->tensors[i], reason, sizeof(reason));
		cli_warn(common, "%s: tensor %s: found %s, kept raw", path,
			 p->source->tensors[i].name, reason);
	}
	if (underflow)
		cli_warn(common,
			 "%s: %" PRIu64
			 " groups lost their state to scales below FP16's range; --scale e8m8 "
			 "keeps them",
			 path, underflow);
	if (exposed)
		cli_warn(common,
			 "%s: %" PRIu64
			 " variance%s 0 under a momentum that does not, and the next step of "
			 "these weights is m / eps%s",
			 path, exposed, exposed == 1 ? " becomes" : "s become",
			 narrow ? "; their type has nothing between"
				: "; --scale e8m8 keeps them above 0");
	if (p->generation >= 2)
		cli_warn(common,
			 "%s: lossy generation %u: these values went through a lossy codec before",
			 path, p->generation);
}

/* --- The command ---------------------------------------------------------------------------- */

static int pack(const struct cli_cmd *cmd, struct args *a, const struct tsr_pack_options *o)
{
	const enum tsr_container named = cli_write_options(&a->common, NULL).container;
	struct tsr_kept_raw kept = { 0 };
	TSR_OWNED(tsr_packing_free) struct tsr_packing *p = NULL;
	enum tsr_status packed;
	struct cli_work work;
	struct tsr_report r;
	int status, checked = CLI_OK;

	if (a->only)
		CLI_TRY(cli_part_refuse(cmd, "a model alone"));
	CLI_TRY(cli_work_open(&work, cmd, &a->common, "packing"));
	packed = cli_work_end(&work, (a->only ? tsr_pack_model : tsr_pack)(
					     a->common.operands.items, a->common.operands.n,
					     a->common.output, o, &work.run, &p, &work.err));
	if (!p)
		return cli_error(&work.err);
	tsr_kept_raw_add(&kept, p);
	if (packed == TSR_OK) {
		/* Whoever opens the output by its name expects another kind of file. */
		if (named != TSR_CONTAINER_COUNT && named != TSR_CONTAINER_SAFETENSORS)
			cli_warn(&a->common,
				 "%s: a packed file is a safetensors file, which programs do not "
				 "expect under a name that ends in %s",
				 a->common.output, strrchr(a->common.output, '.'));
		warn(&a->common, p);
		checked = cli_check_delta(&a->common, p->source, &p->delta,
					  a->only ? NULL : a->delta, a->strict);
	}
	r = cli_report(cmd, &a->common, NULL);
	/* For nobody it would take 5% of the time of very many small tensors. */
	if (r.wants_text || r.wants_json)
		tsr_packing_report(p, o, a->only, packed != TSR_E_BOUND && !a->common.dry_run, &r);
	status = cli_end_report(&r, &a->common);
	if (packed == TSR_OK && status == CLI_OK && !a->only)
		status = cli_check_packed(&a->common, o, p, &kept);
	if (packed != TSR_OK)
		return cli_error(&work.err);
	return status == CLI_OK ? checked : status;
}

/* A rule is for all files of the directory together. */
static int pack_directory(const struct cli_cmd *cmd, const struct args *a,
			  struct tsr_pack_options *o)
{
	bool matched[CLI_RULES_MAX] = { false };

	o->rules_matched = matched;
	CLI_TRY(cli_pack_directory(cmd, &a->common, o, warn));
	if (tsr_part_is_one(cli_parts()))
		return CLI_OK;
	for (unsigned i = 0; i < o->nrules; i++) {
		if (!matched[i])
			cli_warn(&a->common, "regular expression '%s' matches no tensor of %s",
				 o->rules[i].regex, a->common.operands.items[0]);
	}
	return CLI_OK;
}

/* Whether there is one input, which is packed; a stream, which can be read once, is taken for a source. */
static int find_packed(const struct cli_common *common, bool *ret)
{
	TSR_OWNED(tsr_checkpoint_close) struct tsr_checkpoint *c = NULL;
	struct tsr_err err = { 0 };
	struct stat st;

	*ret = cli_packs_directory(common) && tsr_directory_is_packed(common->operands.items[0]);
	if (common->operands.n != 1 || cli_packs_directory(common) ||
	    (stat(common->operands.items[0], &st) == 0 && !S_ISREG(st.st_mode)))
		return CLI_OK;
	if (tsr_checkpoint_open(common->operands.items, 1, &common->open, &c, &err) != TSR_OK)
		return cli_error(&err);
	*ret = tsr_checkpoint_is_packed(c);
	return CLI_OK;
}

/* A packed input keeps its codecs: every option for codecs is refused. */
static int recode(const struct cli_cmd *cmd, const struct args *a, const struct tsr_pack_options *o)
{
	struct tsr_recode_options how = tsr_recode_defaults();

	if (cli_given(&a->common, CODEC_OPTIONS))
		return cli_usage(cmd,
				 "%s is packed and keeps its codecs: only --model and "
				 "--max-shard-size go with --entropy",
				 a->common.operands.items[0]);
	how.coded = o->coded;
	how.weights_out = a->model;
	how.delta = o->delta;
	how.max_chain = o->max_chain;
	return cli_recode(cmd, &a->common, &how, a->strict);
}

static int run(const struct cli_cmd *cmd, void *args)
{
	struct args *a = args;
	struct tsr_pack_options o = tsr_pack_defaults();
	struct tsr_name_rule rules[CLI_RULES_MAX];
	struct tsr_bound bounds[CLI_BOUNDS_MAX];

	struct tsr_choice_options choice;
	struct tsr_learn_options learn;
	TSR_OWNED(tsr_learned_free) struct tsr_learned *learned = NULL;
	bool packed = false;

	CLI_TRY(check(cmd, a));
	CLI_TRY(parse_codings(cmd, a, &o, &choice));
	CLI_TRY(cli_parse_rules(cmd, &a->keep, &a->map, rules, &o.nrules));
	CLI_TRY(cli_parse_bounds(cmd, &a->max_error, true, bounds, &o.nbounds));
	o.open = &a->common.open;
	o.max_shard_nbytes = a->common.max_shard;
	o.weights_out = a->model;
	o.rules = rules;
	o.bounds = bounds;
	o.strict = a->strict;
	o.force = a->common.force;
	o.dry_run = a->common.dry_run;
	o.coded = a->delta && !a->entropy.given ? TSR_CODED_ALL : cli_coded_planes(&a->entropy);
	o.delta = a->delta;
	o.max_chain = (unsigned)a->max_chain;
	if (a->delta && !cli_packs_directory(&a->common))
		CLI_TRY(cli_check_base(cmd, a->delta, a->only != NULL));
	if (a->as)
		CLI_TRY(cli_parse_dtype(cmd, a->as, &o.as));
	if ((a->entropy.given || a->delta) && !a->only)
		CLI_TRY(find_packed(&a->common, &packed));
	a->learning.compat = a->compat;
	learn = cli_learn_options(&a->learning);
	o.learn = &learn;
	if (a->codebook_from)
		CLI_TRY(cli_learn(&a->learning, &a->common,
				  &(struct cli_list){ &a->codebook_from, 1 }, true, true,
				  &learned));
	o.learned = learned;
	if (packed)
		return recode(cmd, a, &o);
	return cli_packs_directory(&a->common) ? pack_directory(cmd, a, &o) : pack(cmd, a, &o);
}

TSR_EMBED(help_pack, "man/help/pack.txt");

const struct cli_cmd cmd_pack = {
	.name = "pack",
	.summary = "pack an FP32 checkpoint: split weights, 8-bit optimizer state",
	.operands = "IN...",
	.help = help_pack,
	.opts = opts,
	.takes = CLI_PARTS | CLI_WRITES | CLI_READS | CLI_COMPUTES | CLI_WORKS | CLI_REPORTS |
		 CLI_NUMBERS,
	.output_needed = true,
	.name_output = cli_name_packed,
	.args_nbytes = sizeof(struct args),
	.run = run,
};
