/* SPDX-License-Identifier: Apache-2.0 */
/* What the options about inputs and outputs mean. */
#include "cli/files.h"

#include <ctype.h>
#include <strings.h>

#include "base/fail.h"
#include "container/containers.h"
#include "io/spool.h"
#include "tersor/recording.h"

/* The longest file of --params. */
#define PARAMS_MAX (64u << 20)

int cli_parse_dtype(const struct cli_cmd *cmd, const char *name, enum tsr_dtype *ret)
{
	for (unsigned i = 0; i < TSR_DTYPE_COUNT; i++) {
		if (strcasecmp(tsr_dtype_name((enum tsr_dtype)i), name) == 0) {
			*ret = (enum tsr_dtype)i;
			return CLI_OK;
		}
	}
	return cli_usage(cmd,
			 "option --npy-dtype: unknown dtype '%s', expected bf16, f8_e4m3 or "
			 "similar",
			 name);
}

int cli_check_no_recording(const char *path)
{
	if (!tsr_recording_probe(path))
		return CLI_OK;
	return cli_fail(CLI_INPUT,
			"%s: is a recording, expected a checkpoint; 'tersor replay CHECKPOINT "
			"RECORDING' takes it last",
			path);
}

/* Cut the text into lines, without blank ones and spaces at their ends. */
static int split_lines(struct cli_input *in, struct tsr_open_options *open)
{
	size_t room = 1;
	char *next;

	for (const char *at = in->text; *at; at++)
		room += *at == '\n';
	in->names = calloc(room + 1, sizeof(*in->names));
	if (!in->names)
		return cli_fail(CLI_IO, "out of memory");
	for (char *line = in->text; line; line = next) {
		char *end = strchr(line, '\n');

		next = end ? end + 1 : NULL;
		end = end ? end : line + strlen(line);
		while (end > line && isspace((unsigned char)end[-1]))
			end--;
		*end = '\0';
		if (end > line)
			in->names[open->nparams++] = line;
	}
	open->params = in->names;
	return CLI_OK;
}

static int read_params(const struct cli_cmd *cmd, struct cli_common *common, struct cli_input *in)
{
	const char *path = common->params;
	struct tsr_err err = { 0 };
	TSR_OWNED(tsr_file_close) struct tsr_file *f = NULL;
	enum tsr_status status;
	size_t n;

	if (tsr_spool_open(path, &f, &err) != TSR_OK)
		return cli_error(&err);
	if (tsr_file_size(f) > PARAMS_MAX)
		return cli_usage(cmd, "option --params: '%s' is over the limit of %u bytes", path,
				 PARAMS_MAX);
	n = (size_t)tsr_file_size(f);
	in->text = calloc(1, n + 1);
	status = in->text ? tsr_file_read(f, in->text, n, 0, &err) : tsr_fail_nomem(&err, path);
	if (status != TSR_OK)
		return cli_error(&err);
	if (strlen(in->text) != n)
		return cli_fail(CLI_INPUT, "%s: found a NUL byte, expected names of parameters",
				path);
	return split_lines(in, &common->open);
}

/* The parameters of a model that keeps their order, as names that live as long as it is open. */
static int read_order(struct cli_common *common, struct cli_input *in)
{
	struct tsr_open_options *open = &common->open;
	struct tsr_err err = { 0 };

	if (tsr_checkpoint_open(&common->params_from, 1, open, &in->model, &err) != TSR_OK)
		return cli_error(&err);
	in->names = calloc(in->model->ntensors + 1, sizeof(*in->names));
	if (!in->names)
		return cli_fail(CLI_IO, "out of memory");
	for (size_t i = 0; i < in->model->ntensors; i++) {
		const struct tsr_tensor *t = &in->model->tensors[i];

		if (t->model)
			in->names[t->model - 1] = t->name;
		open->norder += t->model != 0;
	}
	open->order = in->names;
	if (!open->norder)
		return cli_fail(CLI_INPUT,
				"%s: does not keep the order of parameters, expected a .pt with a "
				"model's state_dict; list the names in a file and give it with "
				"--params",
				common->params_from);
	return CLI_OK;
}

int cli_parse_input(const struct cli_cmd *cmd, struct cli_common *common, struct cli_input *ret)
{
	const char *word = common->opaque;
	int status = CLI_OK;

	*ret = (struct cli_input){ 0 };
	common->open = tsr_open_defaults();
	common->open.follow = common->follow;
	common->open.base = common->base;
	common->open.opaque = !word || strcmp(word, "carry") == 0 ? TSR_OPAQUE_CARRY
			      : strcmp(word, "drop") == 0	  ? TSR_OPAQUE_DROP
								  : TSR_OPAQUE_REFUSE;
	common->open.numbered = (cmd->takes & CLI_NUMBERS) != 0;
	if (common->npy_dtype)
		status = cli_parse_dtype(cmd, common->npy_dtype, &common->open.as);
	if (status == CLI_OK && common->params)
		status = read_params(cmd, common, ret);
	if (status == CLI_OK && common->params_from)
		status = read_order(common, ret);
	if (status != CLI_OK)
		cli_input_free(ret);
	return status;
}

void cli_input_free(struct cli_input *input)
{
	free(input->text);
	free(input->names);
	tsr_checkpoint_close(input->model);
}

/* --- Outputs --------------------------------------------------------------------------------- */

struct tsr_write_options cli_write_options(const struct cli_common *common, const char *to)
{
	struct tsr_write_options o = tsr_write_defaults();

	o.flashoptim = to && strcmp(to, "flashoptim") == 0;
	if (o.flashoptim)
		o.container = TSR_CONTAINER_TORCH;
	else if (to)
		(void)tsr_container_find(to, &o.container);
	else if (!tsr_container_stem(common->output, &o.container))
		o.container = TSR_CONTAINER_COUNT;
	o.max_shard_nbytes = common->max_shard;
	o.open = &common->open;
	o.force = common->force;
	o.dry_run = common->dry_run;
	return o;
}

void cli_warn_notes(const struct cli_common *common, const struct tsr_checkpoint *c)
{
	for (size_t i = 0; i < c->nnotes; i++) {
		/* Without an output nothing is left out of it. */
		const uint64_t told = c->remarks | (common->output ? 0 : c->not_read_notes);

		(i < 64 && told >> i & 1 ? cli_note : cli_warn)(common, "%s", c->notes[i]);
	}
	if (c->nunchecked)
		cli_warn(common, "%s: %zu records have no checksum: their data is unverified",
			 c->path, c->nunchecked);
}
