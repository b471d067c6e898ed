/* SPDX-License-Identifier: Apache-2.0 */
/* The list of codecs. */
#include "report/checkpoints/checkpoint_reports.h"

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

/* One row for a codec, or for a whole family, whose members follow each other; returns the last of them. */
static const struct tsr_codec *const *add_row(struct tsr_table *t, const struct tsr_codec *const *c,
					      enum tsr_kind kind)
{
	const struct tsr_codec *const *last = c;
	const struct tsr_coding first = tsr_coding_default(*c);
	struct tsr_coding coding;
	char head[32];

	while (same_family(*c, last[1]))
		last++;
	coding = tsr_coding_default(*last);
	snprintf(head, sizeof(head), "%s codecs:17", tsr_kind_name(kind));
	tsr_row(t);
	TSR_CELL(t, "name", head,
		 last == c ? (*c)->name : tsr_keepf(t, "%s..%u", (*c)->name, (*last)->extra_bits));
	tsr_mark(t, is_default(*c, kind));
	TSR_CELL(t, "bytes", "bytes:14",
		 last == c ? tsr_keepf(t, "%.5g", tsr_coding_bytes_per_element(&first))
			   : tsr_keepf(t, "%.5g to %.5g", tsr_coding_bytes_per_element(&first),
				       tsr_coding_bytes_per_element(&coding)));
	TSR_CELL(t, "summary", "what it keeps", (*c)->summary);
	return last;
}

/* Whether a codec, or one of its family, is among those asked for; none: all are. */
static bool is_asked_for(const struct tsr_codec *c, const char *const *asked, unsigned n)
{
	bool found = n == 0;

	for (unsigned i = 0; i < n && !found; i++) {
		const struct tsr_codec *other = tsr_codec_find(asked[i]);

		found = c == other || same_family(c, other);
	}
	return found;
}

static void put_codec(const struct tsr_codec *c, struct tsr_text *json)
{
	const struct tsr_coding coding = tsr_coding_default(c);
	const char *is[3], *usual[3];
	size_t nis = 0, nusual = 0;
	struct tsr_table planes = { 0 };

	for (unsigned i = 0; i < c->nplanes; i++) {
		tsr_row(&planes);
		TSR_CELL(&planes, "suffix", NULL, c->planes[i].suffix);
		TSR_CELL(&planes, "dtype", NULL, tsr_dtype_name(tsr_plane_dtype(&coding, i)));
	}
	tsr_json_open(json, NULL, '{');
	tsr_json_put_string(json, "name", c->name);
	tsr_json_put_string(json, "summary", c->summary);
	tsr_json_put_string(json, "source", c->source);
	tsr_json_put_string(json, "family", c->family);
	for (unsigned k = 0; k < 3; k++) {
		if (c->kinds & kinds[k])
			is[nis++] = tsr_kind_name(kinds[k]);
		if (is_default(c, kinds[k]))
			usual[nusual++] = tsr_kind_name(kinds[k]);
	}
	tsr_json_put_strings(json, "kinds", is, nis);
	tsr_json_put_strings(json, "default_for", usual, nusual);
	tsr_table_end_json(planes, "planes", json);
	tsr_json_put_double(json, "bytes_per_element", tsr_coding_bytes_per_element(&coding));
	tsr_json_put_bool(json, "grouped", c->grouped);
	tsr_json_put_bool(json, "stochastic", c->stochastic);
	tsr_json_close(json, '}');
}

void tsr_codecs_report(const char *const *asked, unsigned n, struct tsr_report *r)
{
	for (unsigned k = 0; k < 3; k++) {
		struct tsr_table t = { 0 };

		for (const struct tsr_codec *const *c = tsr_codecs(); *c; c++) {
			if ((*c)->kinds & kinds[k] && is_asked_for(*c, asked, n))
				c = add_row(&t, c, kinds[k]);
		}
		if (t.nrows) {
			tsr_report_table(r, t, "", NULL);
			tsr_report_gap(r);
		}
	}
	tsr_report_say(r, TSR_TO_TEXT,
		       "bytes per element, with usual groups and scales; * is the default");
	tsr_json_open(&r->json, "codecs", '[');
	for (const struct tsr_codec *const *c = tsr_codecs(); *c; c++) {
		if (is_asked_for(*c, asked, n))
			put_codec(*c, &r->json);
	}
	tsr_json_close(&r->json, ']');
}
