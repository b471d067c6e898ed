/* SPDX-License-Identifier: Apache-2.0 */
/* Reports that people read: what is said once becomes lines of text and a part of a page. */
#ifndef TSR_RENDER_DOCUMENT_H
#define TSR_RENDER_DOCUMENT_H

#include "render/plot.h"
#include "render/table.h"

/* The list that is open in a page. */
enum tsr_open_list { TSR_IN_NOTHING, TSR_IN_FACTS, TSR_IN_FINDINGS };

/* A report in all the forms that were asked for; the others stay empty. */
struct tsr_report {
	bool differs; /* a comparison or a bound failed */
	bool wants_text, wants_csv, wants_svg, wants_html, wants_json;
	unsigned verbose;
	const char *output; /* what the command writes; NULL in a dry run without a name for it */
	bool dry_run;
	struct tsr_text text, csv, svg, html, json;
	enum tsr_open_list in; /* in the page */
};

/* A page begins with its title, which the text does not have; @name: of its window. */
void tsr_report_open(struct tsr_report *r, const char *name, const char *title);

/* @json: values for the script of the page, which is freed; NULL: it has none. */
void tsr_report_close(struct tsr_report *r, struct tsr_text *json);

/* A heading; in text an empty line and the same words.  Words are none of markup here and below. */
#define tsr_report_heading(r, to, ...) tsr_report_put(r, to, TSR_HEADING, "", __VA_ARGS__)

/* A paragraph; wrapped lines, of which the later ones are indented by two. */
#define tsr_report_say(r, to, ...) tsr_report_put(r, to, TSR_WORDS, "", __VA_ARGS__)

/* What there is to know before: "name      words". */
#define tsr_report_fact(r, to, name, ...) tsr_report_put(r, to, TSR_FACT, name, __VA_ARGS__)

enum tsr_block { TSR_HEADING, TSR_WORDS, TSR_FACT };

void tsr_report_put(struct tsr_report *r, enum tsr_to to, enum tsr_block block, const char *name,
		    const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* An empty line of text. */
void tsr_report_gap(struct tsr_report *r);

/* What text calls the output, with "dry run" for none; the members "output" and "dry_run". */
struct tsr_cell tsr_report_output(const struct tsr_report *r, unsigned width);
void tsr_report_put_output(struct tsr_report *r);

/*
 * What the report says above all, in a box of the colour of @level, with which it begins, and with the name
 * of what it is about; NULL: it begins with neither.
 */
void tsr_report_find(struct tsr_report *r, enum tsr_to to, const char *level, const char *name,
		     const char *words);

/*
 * A table, which is freed: the keys of the columns that text and page show; NULL: it is not there, nor is one
 * without rows.
 */
void tsr_report_table(struct tsr_report *r, struct tsr_table t, const char *text, const char *page);

/* These columns of a table in text, if it has a row there; the table stays. */
void tsr_report_lines(struct tsr_report *r, struct tsr_table *t, const char *columns);

/*
 * The same of a report without a page, and a member @key of its JSON; the table is freed.  NULL: it is not
 * there.
 */
void tsr_report_rows(struct tsr_report *r, struct tsr_table t, const char *key, const char *text);

/* The charts of a page; one as a file, with this id; and HTML as it is. */
void tsr_report_charts(struct tsr_report *r, tsr_chart_put *put, const void *ctx);
void tsr_report_svg(struct tsr_report *r, const char *id, tsr_chart_put *put, const void *ctx);
void tsr_report_markup(struct tsr_report *r, const char *html);

#endif
