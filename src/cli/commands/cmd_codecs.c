/* SPDX-License-Identifier: Apache-2.0 */
/* tersor codecs: the list of codecs. */
#include <stdio.h>
#include <string.h>

#include "text/json.h"
#include "cli/output.h"
#include "tersor/pack.h"

static const enum tsr_kind kinds[] = { TSR_KIND_WEIGHT, TSR_KIND_MOMENTUM, TSR_KIND_VARIANCE };

static bool is_default(const struct tsr_codec *c, enum tsr_kind kind)
{
	const struct tsr_pack_options o = tsr_pack_defaults();

	return c == (kind == TSR_KIND_WEIGHT	 ? o.weight.codec
		     : kind == TSR_KIND_MOMENTUM ? o.momentum.codec
						 : o.variance.codec);
}

static bool same_family(const struct tsr_codec *a, const struct tsr_codec *b)
{
	return a && b && a->family && b->family && strcmp(a->family, b->family) == 0;
}

/* One row for a codec, or for a whole family, whose members follow each other. */
static const struct tsr_codec *const *print_row(const struct tsr_codec *const *c,
						enum tsr_kind kind)
{
	const struct tsr_codec *const *last = c;
	struct tsr_coding first = tsr_coding_default(*c), coding;
	char name[32], bytes[32];

	while (same_family(*c, last[1]))
		last++;
	coding = tsr_coding_default(*last);
	snprintf(name, sizeof(name), "%s", (*c)->name);
	snprintf(bytes, sizeof(bytes), "%.5g", tsr_coding_bytes_per_element(&first));
	if (last != c) {
		snprintf(name, sizeof(name), "%s..%u", (*c)->name, (*last)->extra_bits);
		snprintf(bytes, sizeof(bytes), "%.5g to %.5g", tsr_coding_bytes_per_element(&first),
			 tsr_coding_bytes_per_element(&coding));
	}
	printf("  %-15s%c %-14s %s\n", name, is_default(*c, kind) ? '*' : ' ', bytes,
	       (*c)->summary);
	return last;
}

static int report_json(const struct cli_cmd *cmd, const struct cli_common *common)
{
	struct tsr_text json = { 0 };

	cli_json_begin(&json, cmd);
	tsr_json_open(&json, "codecs", '[');
	for (const struct tsr_codec *const *c = tsr_codecs(); *c; c++) {
		const struct tsr_coding coding = tsr_coding_default(*c);

		tsr_json_open(&json, NULL, '{');
		tsr_json_put_string(&json, "name", (*c)->name);
		tsr_json_put_string(&json, "summary", (*c)->summary);
		tsr_json_put_string(&json, "source", (*c)->source);
		tsr_json_put_string(&json, "family", (*c)->family);
		tsr_json_open(&json, "kinds", '[');
		for (unsigned k = 0; k < 3; k++) {
			if ((*c)->kinds & kinds[k])
				tsr_json_put_string(&json, NULL, tsr_kind_name(kinds[k]));
		}
		tsr_json_close(&json, ']');
		tsr_json_open(&json, "planes", '[');
		for (unsigned i = 0; i < (*c)->nplanes; i++) {
			tsr_json_open(&json, NULL, '{');
			tsr_json_put_string(&json, "suffix", (*c)->planes[i].suffix);
			tsr_json_put_string(&json, "dtype",
					    tsr_dtype_name(tsr_plane_dtype(&coding, i)));
			tsr_json_close(&json, '}');
		}
		tsr_json_close(&json, ']');
		tsr_json_put_double(&json, "bytes_per_element",
				    tsr_coding_bytes_per_element(&coding));
		tsr_json_put_bool(&json, "grouped", (*c)->grouped);
		tsr_json_put_bool(&json, "stochastic", (*c)->stochastic);
		tsr_json_close(&json, '}');
	}
	tsr_json_close(&json, ']');
	return cli_json_end(&json, common);
}

static int run(const struct cli_cmd *cmd, void *args)
{
	const struct cli_common *common = args;

	for (unsigned k = 0; k < 3 && cli_wants_text(common); k++) {
		printf("%s%-8s codecs    %-14s what it keeps\n", k ? "\n" : "",
		       tsr_kind_name(kinds[k]), "bytes");
		for (const struct tsr_codec *const *c = tsr_codecs(); *c; c++) {
			if ((*c)->kinds & kinds[k])
				c = print_row(c, kinds[k]);
		}
	}
	if (cli_wants_text(common))
		printf("\nbytes per element, with usual groups and scales; * is the default\n");
	return common->json.given ? report_json(cmd, common) : CLI_OK;
}

const struct cli_cmd cmd_codecs = {
	.name = "codecs",
	.summary = "list the codecs for weights, momenta and variances",
	.operands = "",
	.details = "Lists every codec with its bytes per element.",
	.examples = "  tersor codecs\n",
	.takes = CLI_REPORTS,
	.args_nbytes = sizeof(struct cli_common),
	.run = run,
};
