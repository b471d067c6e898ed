/* SPDX-License-Identifier: Apache-2.0 */
/* What a packing left as it was, and why: lines of a report and members of its JSON. */
#include "report/remarks.h"

/* Below one part in this many, almost nothing was packed. */
#define ALMOST_NOTHING 20

/* --- Text ------------------------------------------------------------------------------------- */

static void put_line(struct tsr_text *out, const struct tsr_kept_class *of, const char *what)
{
	tsr_text_printf(out, "kept raw: %s: %" PRIu64 " tensor%s, %s", what, of->ntensors,
			of->ntensors == 1 ? "" : "s", tsr_format_bytes((double)of->nbytes).text);
}

/* "98%", and never 100% of what is not all. */
static void put_share(struct tsr_text *out, uint64_t part, uint64_t all)
{
	const double percent = 100.0 * (double)part / (double)all;

	tsr_text_printf(out, "%.0f%%", part < all && percent > 99 ? 99 : percent);
}

static enum tsr_dtype commonest(const struct tsr_kept_raw *k)
{
	unsigned most = 0;

	for (unsigned i = 0; i < TSR_DTYPE_COUNT; i++)
		most = k->dtype_nbytes[i] > k->dtype_nbytes[most] ? i : most;
	return (enum tsr_dtype)most;
}

void tsr_kept_raw_put_why(const struct tsr_kept_raw *k, struct tsr_text *out)
{
	static const char *const why[TSR_KEPT_COUNT] = {
		[TSR_KEPT_DTYPE] = ", which stays as it is: weights are packed if they are F32, "
				   "moments also if they are BF16 or F16; --entropy codes all "
				   "without loss",
		[TSR_KEPT_STATE] =
			"optimizer state that tersor does not know; --other CODEC packs it",
		[TSR_KEPT_SMALL] = "in small tensors; --min-elements 1 packs them",
		[TSR_KEPT_INTEGERS] = "integers",
		[TSR_KEPT_CHOICE] = "in tensors for which no codec is within the bound",
		[TSR_KEPT_VALUES] = "in tensors with values that their codec cannot hold",
		[TSR_KEPT_QUANTIZED] = "part of quantized weights",
		[TSR_KEPT_OTHER] =
			("neither weight nor moment by its name, or kept; -v shows kinds, --map "
			 "changes them"),
	};
	const enum tsr_dtype dtype = commonest(k);
	unsigned most = 0;

	if (!k->nbytes) {
		tsr_text_puts(out, "the input has no tensors");
		return;
	}
	for (unsigned i = 0; i < TSR_KEPT_COUNT; i++)
		most = k->by[i].nbytes > k->by[most].nbytes ? i : most;
	put_share(out, most == TSR_KEPT_DTYPE ? k->dtype_nbytes[dtype] : k->by[most].nbytes,
		  k->nbytes);
	tsr_text_printf(out, " of the input's data is %s%s",
			most == TSR_KEPT_DTYPE ? tsr_dtype_name(dtype) : "", why[most]);
}

void tsr_kept_raw_put_text(const struct tsr_kept_raw *k, struct tsr_text *out)
{
	const struct tsr_kept_class *by = k->by;

	if (by[TSR_KEPT_STATE].ntensors) {
		put_line(out, &by[TSR_KEPT_STATE], "optimizer state that tersor does not know");
		for (unsigned i = 0; i < k->nfields; i++)
			tsr_text_printf(out, "%s%s", i ? ", " : " (",
					tsr_format_name(k->fields[i], 31).text);
		tsr_text_printf(out, "%s; --other CODEC packs them)\n",
				k->nfields == TSR_KEPT_FIELDS_MAX ? ", ..." : "");
	}
	if (by[TSR_KEPT_SMALL].ntensors) {
		put_line(out, &by[TSR_KEPT_SMALL], "few elements");
		tsr_text_puts(out, " (--min-elements 1 packs them)\n");
	}
	if (by[TSR_KEPT_INTEGERS].ntensors) {
		put_line(out, &by[TSR_KEPT_INTEGERS], "integers, which their codec would change");
		tsr_text_puts(out, "\n");
	}
	if (by[TSR_KEPT_CHOICE].ntensors) {
		put_line(out, &by[TSR_KEPT_CHOICE], "no codec within the bound");
		tsr_text_puts(out, " (--auto-codecs names others)\n");
	}
	if (k->packed_nbytes && k->packed_nbytes < k->nbytes / ALMOST_NOTHING) {
		tsr_text_puts(out, "almost nothing was packed: ");
		tsr_kept_raw_put_why(k, out);
		tsr_text_puts(out, "\n");
	}
}

/* --- JSON ------------------------------------------------------------------------------------- */

void tsr_kept_raw_put_json(const struct tsr_kept_raw *k, struct tsr_text *json)
{
	static const char *const names[TSR_KEPT_COUNT] = {
		"dtype", "unknown_state", "few_elements", "integers",
		"bound", "values",	  "quantized",	  "other",
	};

	tsr_json_put_u64(json, "packed_nbytes", k->packed_nbytes);
	tsr_json_open(json, "kept_raw", '[');
	for (unsigned i = 0; i < TSR_KEPT_COUNT; i++) {
		if (!k->by[i].ntensors)
			continue;
		tsr_json_open(json, NULL, '{');
		tsr_json_put_string(json, "why", names[i]);
		tsr_json_put_u64(json, "tensors", k->by[i].ntensors);
		tsr_json_put_u64(json, "nbytes", k->by[i].nbytes);
		if (i == TSR_KEPT_STATE) {
			tsr_json_open(json, "fields", '[');
			for (unsigned n = 0; n < k->nfields; n++)
				tsr_json_put_string(json, NULL, k->fields[n]);
			tsr_json_close(json, ']');
		}
		tsr_json_close(json, '}');
	}
	tsr_json_close(json, ']');
}
