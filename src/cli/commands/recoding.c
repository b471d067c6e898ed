/* SPDX-License-Identifier: Apache-2.0 */
/* Packed files whose planes are coded, or no longer: pack --entropy of a packed file, convert --plain. */
#include "cli/commands/recoding.h"

#include <stdio.h>

#include "ckpt/checkpoint_model.h"
#include "cli/input.h"
#include "cli/output.h"
#include "cli/work.h"
#include "pack/packing.h"
#include "report/format.h"
#include "text/json.h"

void cli_put_coded(uint64_t nbytes, uint64_t plain_nbytes, bool dry_run)
{
	if (dry_run)
		printf("entropy coding: makes it smaller, by how much shows when it is done\n");
	else
		printf("entropy coding: %s before, %.1f%% of that\n",
		       tsr_format_bytes((double)plain_nbytes).text,
		       plain_nbytes ? 100.0 * (double)nbytes / (double)plain_nbytes : 100.0);
}

/* Elements of the weights: what bytes per parameter are relative to. */
static uint64_t count_parameters(const struct tsr_checkpoint *c)
{
	uint64_t n = 0;

	for (size_t i = 0; i < c->ntensors; i++)
		n += c->tensors[i].kind == TSR_KIND_WEIGHT ? c->tensors[i].numel : 0;
	return n;
}

static uint64_t stored_nbytes(const struct tsr_checkpoint *c)
{
	uint64_t n = 0;

	for (size_t i = 0; i < c->ntensors; i++)
		n += tsr_tensor_stored_nbytes(c, &c->tensors[i]);
	return n;
}

static void print_report(const struct cli_common *common, const struct tsr_unpacking *u)
{
	const uint64_t parameters = count_parameters(u->source);

	printf("%s: packed, %zu tensors, %s%s", cli_output_name(common, 40).text,
	       u->source->ntensors, tsr_format_bytes((double)u->nbytes).text,
	       common->dry_run ? " planned before coding" : "");
	if (parameters && !common->dry_run)
		printf(", %.3f bytes per parameter, %.3f before",
		       (double)u->nbytes / (double)parameters,
		       (double)stored_nbytes(u->source) / (double)parameters);
	printf("\n");
}

static int report_json(const struct cli_cmd *cmd, const struct cli_common *common,
		       const struct tsr_unpacking *u)
{
	struct tsr_text json = { 0 };

	cli_json_begin(&json, cmd);
	cli_json_inputs(&json, common);
	cli_json_output(&json, common);
	tsr_json_put_u64(&json, "nbytes", u->nbytes);
	tsr_json_put_u64(&json, "plain_nbytes", u->plain_nbytes);
	tsr_json_put_u64(&json, "before_nbytes", stored_nbytes(u->source));
	tsr_json_put_u64(&json, "parameters", count_parameters(u->source));
	tsr_json_put_u64(&json, "generation", u->source->generation);
	cli_json_tensors(&json, u->source, NULL, NULL);
	return cli_json_end(&json, common);
}

int cli_recode(const struct cli_cmd *cmd, const struct cli_common *common,
	       struct tsr_recode_options *how)
{
	struct tsr_unpacking *u = NULL;
	struct tsr_err err = { 0 };
	enum tsr_status written;
	struct cli_work work;
	int status = CLI_OK;

	how->max_shard_nbytes = common->max_shard;
	how->open = &common->open;
	how->force = common->force;
	how->dry_run = common->dry_run;
	CLI_TRY(cli_work_open(&work, cmd, common, "coding"));
	written = tsr_recode(common->operands.items[0], common->output, how, &work.run, &u, &err);
	cli_work_end(&work);
	if (!u)
		return cli_error(&err);
	cli_warn_notes(common, u->source);
	if (cli_wants_text(common))
		print_report(common, u);
	if (common->json.given)
		status = report_json(cmd, common, u);
	tsr_unpacking_free(u);
	return written == TSR_OK ? status : cli_error(&err);
}
