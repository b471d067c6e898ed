/* SPDX-License-Identifier: Apache-2.0 */
/* Which codecs a packing chose by their errors, as text and as JSON. */
#include "report/checkpoints/remarks.h"

/* --- Text ---------------------------------------------------------------------------------------- */

void tsr_choices_put_text(const struct tsr_choices *s, struct tsr_text *out)
{
	struct tsr_text words = { 0 };

	if (!s->n && !s->nraw)
		return;
	tsr_text_printf(out, "chosen within an error of %.1e, the largest %.1e:\n", s->bound,
			s->largest);
	for (unsigned i = 0; i < s->n; i++)
		tsr_text_printf(&words, "%s%s for %s", i ? ", " : "", s->by[i].codec->name,
				tsr_format_number(s->by[i].ntensors, "tensor").text);
	if (s->nraw)
		tsr_text_printf(&words, "%s%" PRIu64 " left raw", s->n ? ", " : "", s->nraw);
	tsr_text_puts(out, "  ");
	tsr_put_wrapped(out, words.bytes ? words.bytes : "", 2, 2);
	tsr_text_free(&words);
}

static const char *metric_text(enum tsr_metric metric)
{
	return metric == TSR_METRIC_UPDATE_NMSE	  ? "update NMSE"
	       : metric == TSR_METRIC_WEIGHT_STEP ? "rounding in steps"
						  : "NMSE";
}

/* --- JSON ---------------------------------------------------------------------------------------- */

void tsr_choices_put_json(const struct tsr_choices *s, struct tsr_text *json)
{
	if (!s->n && !s->nraw)
		return;
	tsr_json_open(json, "choice", '{');
	tsr_json_put_double(json, "bound", s->bound);
	tsr_json_put_double(json, "largest_error", s->largest);
	tsr_json_open(json, "tensors", '{');
	for (unsigned i = 0; i < s->n; i++)
		tsr_json_put_u64(json, s->by[i].codec->name, s->by[i].ntensors);
	tsr_json_close(json, '}');
	tsr_json_put_u64(json, "left_raw", s->nraw);
	tsr_json_close(json, '}');
}

void tsr_choice_put(struct tsr_table *t, const struct tsr_choice *choice,
		    const struct tsr_coding *coding)
{
	const struct tsr_codec *refused;
	struct tsr_text why = { 0 };

	if (!choice || !choice->ntried)
		return;
	refused = choice->refused.codec;
	TSR_CELL(t, "choice.tried", NULL, choice->ntried);
	TSR_CELL(t, "choice.metric", NULL, tsr_metric_name(choice->metric));
	TSR_CELL(t, "choice.error", NULL, choice->error);
	TSR_CELL(t, "choice.refused", NULL, refused ? refused->name : NULL);
	if (refused)
		TSR_CELL(t, "choice.refused_error", NULL, choice->refused_error);
	/* Why it has its coding: "tried 3: update NMSE 2.8e-05; the smaller e4m3x 2.2e-04". */
	tsr_text_printf(&why, "tried %u: ", choice->ntried);
	if (coding->codec)
		tsr_text_printf(&why, "%s %.1e%s", metric_text(choice->metric), choice->error,
				refused ? "; the smaller " : "");
	else
		tsr_text_printf(&why, "none within the bound; %s of ", metric_text(choice->metric));
	if (refused)
		tsr_text_printf(&why, "%s %.1e", refused->name, choice->refused_error);
	TSR_CELL(t, "-choice", ":4|", tsr_keep(t, why.bytes ? why.bytes : ""));
	tsr_text_free(&why);
}
