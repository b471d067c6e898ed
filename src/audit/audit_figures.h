/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of an audit over all tensors, and the codecs that they speak for. */
#ifndef TSR_AUDIT_FIGURES_H
#define TSR_AUDIT_FIGURES_H

#include "pack/outcome/moments.h"
#include "tersor/audit.h"

/* Figures of a tensor in a codec. */
enum tsr_audit_figure {
	TSR_AUDIT_NMSE,
	TSR_AUDIT_MAX_ABS,
	TSR_AUDIT_MEAN_REL,
	TSR_AUDIT_ZEROED, /* share of elements */
	TSR_AUDIT_UNDERFLOW, /* groups whose scale was stored as 0 */
	TSR_AUDIT_OVERFLOW, /* as infinite */
	TSR_AUDIT_STUCK, /* share of groups */
	TSR_AUDIT_RANGE_MEAN, /* octaves */
	TSR_AUDIT_RANGE_MAX,
	TSR_AUDIT_BYTES, /* per element */
	TSR_AUDIT_FIGURES
};

/* Whether the moments of the checkpoint can be Adam's. */
struct tsr_moments_found tsr_audit_moments(const struct tsr_audit *a);

/* "nmse", "max_abs", ... */
const char *tsr_audit_figure_name(enum tsr_audit_figure figure);

/* Whether a tensor's figures count: it has some, of finite values, and the codec can hold it. */
bool tsr_audit_counts(const struct tsr_audit_tensor *t, unsigned coding);

/* One coding over all tensors of its kind. */
struct tsr_audit_column {
	const struct tsr_coding *coding;
	size_t n; /* tensors that count */
	size_t nraw; /* that the codec cannot hold, or that it cannot be tried on */
	double quantile[TSR_AUDIT_FIGURES][TSR_AUDIT_QUANTILES];
	uint64_t elements, zeroed, underflow, overflow, groups, stuck;
	double bytes; /* per element of those that count */
	size_t worst; /* of the tensors that count, the index of the one with the largest NMSE */
};

/* Which of the quantiles is the median. */
#define TSR_AUDIT_MEDIAN 3

/* Those of all codings of a kind, in the order of their list. */
const struct tsr_audit_column *tsr_audit_columns(const struct tsr_audit *a, enum tsr_kind kind);

/* One pair of codings over all pairs of tensors. */
struct tsr_audit_cell {
	unsigned m, v; /* as in tsr_audit_update() */
	size_t n, nraw; /* likewise */
	double nmse[TSR_AUDIT_QUANTILES];
	float max_before, max_after;
	uint64_t exposed, overflow;
	size_t worst; /* the pair with the largest NMSE */
	double bytes; /* of both, per element */
};

/*
 * The update NMSE of all elements of all pairs together: their errors' squares over their updates'.
 * 0 without pairs.
 */
double tsr_audit_pooled(const struct tsr_audit *a, unsigned m, unsigned v);

/*
 * All pairs of codings, the best first: those that hold all tensors, by their worst NMSE, then by bytes;
 * then the others.
 */
const struct tsr_audit_cell *tsr_audit_cells(const struct tsr_audit *a, size_t *n_ret);

/* The one of these codings; NULL: they were not tried. */
const struct tsr_audit_cell *tsr_audit_cell(const struct tsr_audit *a, unsigned m, unsigned v);

/* Limits of a verdict: bytes per element of both moments, and the NMSE of either in any tensor. */
#define TSR_AUDIT_BYTES_MAX 2.2
#define TSR_AUDIT_NMSE_MAX 1e-2

/*
 * The pair to use: the one asked for; else of those within these limits that hold all tensors, the
 * ones whose worst update NMSE is within 5% of the least; of these, where there are any, those without stuck
 * groups; of these the one whose variances have the least worst NMSE.  NULL: none.
 */
const struct tsr_audit_cell *tsr_audit_best_pair(const struct tsr_audit *a);

/*
 * The codec of a kind to judge without pairs: of weights pack's default, if it was tried and holds all
 * tensors; else the one with the least worst NMSE of those that hold all.  NULL: there is none.
 */
const struct tsr_audit_column *tsr_audit_best(const struct tsr_audit *a, enum tsr_kind kind);

/* --- Audits of several checkpoints, such as those of one training run: figures by step -------- */

#define TSR_AUDIT_SERIES_MAX 4

/* Pairs of codecs that a series shows, as they are in its last checkpoint. */
struct tsr_audit_series {
	const struct tsr_audit_cell *cell[TSR_AUDIT_SERIES_MAX];
	unsigned n;
};

/* The verdict, the pair that pack uses, and then the best. */
struct tsr_audit_series tsr_audit_series_of(const struct tsr_audit *last);

/*
 * The worst update NMSE in a checkpoint of a pair of codecs of the last one; NaN if it was not tried there or
 * holds nothing.
 */
double tsr_audit_series_nmse(const struct tsr_audit *a, const struct tsr_audit *last,
			     const struct tsr_audit_cell *cell);

#endif
