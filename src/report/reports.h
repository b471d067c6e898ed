/* SPDX-License-Identifier: Apache-2.0 */
/* The reports of commands. */
#ifndef TSR_REPORT_REPORTS_H
#define TSR_REPORT_REPORTS_H

#include "compare/baseline.h"
#include "report/charts/charts.h"
#include "render/document.h"
#include "tersor/bisect.h"
#include "tersor/recording.h"
#include "sweep/results.h"

/* --- Reports of audits ----------------------------------------------------------------------- */

/*
 * Text, CSV, SVG and page of @n audits: several are those of one training run, of which the last has charts.
 * Text has the tables of each, or the figures of papers, of all pairs of codecs; or the tables of the last,
 * and by checkpoint the worst errors of codecs that are best there.
 */
enum tsr_audit_text { TSR_AUDIT_EACH, TSR_AUDIT_PAPER, TSR_AUDIT_LAST };

void tsr_audit_report(struct tsr_audit *const *audits, size_t n, enum tsr_audit_text what,
		      struct tsr_report *r);

/* The member "checkpoints": an object of each. */
void tsr_audit_put_json(struct tsr_audit *const *audits, size_t n, struct tsr_text *json);

/* What is wrong with a tensor, "3 values are not finite", and what to do; NULL of a sound one. */
const char *tsr_audit_fault_text(const struct tsr_audit_tensor *t, char *text, size_t room);

/* --- Reports on 8-bit floats by granularity -------------------------------------------------- */

/* All forms that are asked for. */
void tsr_granularity_report(const struct tsr_granularities *g,
			    const struct tsr_granularity_figures *f,
			    enum tsr_granularity_scale scale, struct tsr_report *r);

/* --- Reports of what was learned: blocks and a codebook -------------------------------------- */

/* All forms that are asked for; text has the entries only if it is verbose. */
void tsr_learned_report(const struct tsr_learned *l, struct tsr_report *r);

/* --- Reports of a replay --------------------------------------------------------------------- */

/* All forms that are asked for.  Of many steps and tensors text and page have a selection. */
void tsr_replay_report(const struct tsr_replay *replay, struct tsr_report *r);

/* --- Parts, for reports of several states ----------------------------------------------------- */

/* Members of an object: what a recording says of the run. */
void tsr_recorded_run_put_json(const struct tsr_recorded_run *run, struct tsr_text *json);

/* The members of a JSON report besides "schema". */
void tsr_replay_put_json(const struct tsr_replay *replay, struct tsr_text *json);

/* Names of columns; lines per step and parameter, and one per step for all ("*").  @state: put before. */
void tsr_replay_put_csv_names(const char *before, struct tsr_text *csv);
void tsr_replay_put_csv(const struct tsr_replay *replay, const char *state, struct tsr_text *csv);

/* What was replayed, and the gate that failed, if one did.  @state: its name where there are several. */
void tsr_replay_report_facts(const struct tsr_replay *replay, bool state, struct tsr_report *r);
void tsr_replay_report_gate(const struct tsr_replay *replay, const char *state,
			    struct tsr_report *r);

/* --- Replays of the same steps in several states, side by side ------------------------------- */

/* All forms that are asked for. */
void tsr_states_report(const struct tsr_replay_states *s, struct tsr_report *r);

/* --- Reports of two runs, step by step ------------------------------------------------------- */

/* All forms that are asked for. */
void tsr_bisect_report(const struct tsr_bisect *b, struct tsr_report *r);

/* --- Reports of sweeps ----------------------------------------------------------------------- */

/* All forms that are asked for: the totals of each codec; text has its exponents only if it is verbose. */
void tsr_sweep_report(const struct tsr_sweep *s, struct tsr_report *r);

/* All forms that are asked for but SVG. */
void tsr_results_report(const struct tsr_results_plan *a, const struct tsr_results *f,
			struct tsr_report *r);

/* --- Tables of an audit, and the same for programs ------------------------------------------- */

/* A row: one codec over all tensors of a kind. */
void tsr_audit_add_codec(struct tsr_table *t, const struct tsr_audit *a, enum tsr_kind kind,
			 unsigned i);

/* All pairs of codecs, the best first. */
struct tsr_table tsr_audit_pairs(const struct tsr_audit *a);

/* One tensor in every codec; those that cannot be tried are put aside, or with @measured left out. */
struct tsr_table tsr_audit_trials(const struct tsr_audit *a, const struct tsr_audit_tensor *tensor,
				  bool measured);

/* The codecs of a pair, and the variance of the pair of tensors with its largest error. */
const char *tsr_audit_momentum(const struct tsr_audit *a, const struct tsr_audit_cell *c);
const char *tsr_audit_variance(const struct tsr_audit *a, const struct tsr_audit_cell *c);
const char *tsr_audit_worst_name(const struct tsr_audit *a, const struct tsr_audit_cell *c);

/* The forms of a verdict, a row each, and the command that packs in one of them. */
struct tsr_table tsr_audit_forms(const struct tsr_audit_verdict *v);
void tsr_audit_put_command(const struct tsr_audit *a, const struct tsr_audit_form *f,
			   struct tsr_text *out);

void tsr_audit_put_csv(struct tsr_audit *const *audits, size_t n, struct tsr_text *csv);

/* --- Tables of a replay that both people and programs see ------------------------------------ */

/* Totals by step: figures as they are, and curves as people see them. */
struct tsr_table tsr_replay_steps_table(const struct tsr_replay *r, const struct tsr_curves *c);

/* Learning rates that are too small for the largest weights; parameters without a gradient. */
struct tsr_table tsr_replay_warnings(const struct tsr_replay *r);
struct tsr_table tsr_replay_missing_table(const struct tsr_replay *r);

/* --- Earlier reports in JSON, read back and compared with ------------------------------------ */

/*
 * Which figures of a report, whose JSON @r has up to its last member, differ from a baseline: puts the first
 * 10,000 behind the text and into the member "moved".
 */
void tsr_baseline_report(const struct tsr_baseline *b, const struct tsr_json *was,
			 struct tsr_report *r);

#endif
