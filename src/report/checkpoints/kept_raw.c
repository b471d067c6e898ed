/* SPDX-License-Identifier: Apache-2.0 */
/* What a packing left as it was, and why: lines of a report and members of its JSON. */
#include "report/checkpoints/remarks.h"

/* Below one part in this many, almost nothing was packed. */
#define ALMOST_NOTHING 20

/* --- Text ------------------------------------------------------------------------------------- */

void tsr_kept_raw_put_why(const struct tsr_kept_raw *k, struct tsr_text *out)
{
	static const char *const why[TSR_KEPT_COUNT] = {
		[TSR_KEPT_DTYPE] = ", which stays as it is: weights are packed if they are F32, "
				   "moments also if they are BF16 or F16; --entropy codes all "
				   "without loss",
		[TSR_KEPT_STATE] =
			"optimizer state that tersor does not know; --other CODEC packs it",
		[TSR_KEPT_FACTOR] = "factors of preconditioners, which lossless codecs only take",
		[TSR_KEPT_SMALL] = "in small tensors; --min-elements 1 packs them",
		[TSR_KEPT_INTEGERS] = "integers",
		[TSR_KEPT_CHOICE] = "in tensors for which no codec is within the bound",
		[TSR_KEPT_VALUES] = "in tensors with values that their codec cannot hold",
		[TSR_KEPT_QUANTIZED] = "part of quantized weights",
		[TSR_KEPT_OTHER] =
			("neither weight nor moment by its name, or kept; -v shows kinds, --map "
			 "changes them"),
	};
	unsigned most = 0, dtype = 0;
	uint64_t part;
	double percent;

	if (!k->nbytes) {
		tsr_text_puts(out, "the input has no tensors");
		return;
	}
	for (unsigned i = 0; i < TSR_KEPT_COUNT; i++)
		most = k->by[i].nbytes > k->by[most].nbytes ? i : most;
	for (unsigned i = 0; i < TSR_DTYPE_COUNT; i++)
		dtype = k->dtype_nbytes[i] > k->dtype_nbytes[dtype] ? i : dtype;
	part = most == TSR_KEPT_DTYPE ? k->dtype_nbytes[dtype] : k->by[most].nbytes;
	percent = 100.0 * (double)part / (double)k->nbytes;
	/* "98%", and never 100% of what is not all. */
	tsr_text_printf(out, "%.0f%% of the input's data is %s%s",
			part < k->nbytes && percent > 99 ? 99 : percent,
			most == TSR_KEPT_DTYPE ? tsr_dtype_name((enum tsr_dtype)dtype) : "",
			why[most]);
}

void tsr_kept_raw_put_text(const struct tsr_kept_raw *k, struct tsr_text *out)
{
	static const struct {
		enum tsr_kept why;
		const char *what, *advice;
	} lines[] = {
		{ TSR_KEPT_STATE, "optimizer state that tersor does not know",
		  "; --other CODEC packs them)" },
		{ TSR_KEPT_FACTOR,
		  "factors of preconditioners, whose inverse roots rounding breaks",
		  " (--entropy codes them without loss)" },
		{ TSR_KEPT_SMALL, "few elements", " (--min-elements 1 packs them)" },
		{ TSR_KEPT_INTEGERS, "integers, which their codec would change", "" },
		{ TSR_KEPT_CHOICE, "no codec within the bound", " (--auto-codecs names others)" },
	};

	for (size_t n = 0; n < sizeof(lines) / sizeof(*lines); n++) {
		const struct tsr_kept_class *of = &k->by[lines[n].why];
		const bool state = lines[n].why == TSR_KEPT_STATE;

		if (!of->ntensors)
			continue;
		tsr_text_printf(out, "kept raw: %s: %s, %s", lines[n].what,
				tsr_format_number(of->ntensors, "tensor").text,
				tsr_format_bytes((double)of->nbytes).text);
		for (unsigned i = 0; state && i < k->nfields; i++)
			tsr_text_printf(out, "%s%s", i ? ", " : " (",
					tsr_format_name(k->fields[i], 31).text);
		tsr_text_printf(out, "%s%s\n",
				state && k->nfields == TSR_KEPT_FIELDS_MAX ? ", ..." : "",
				lines[n].advice);
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
		"dtype", "unknown_state", "factors",   "few_elements", "integers",
		"bound", "values",	  "quantized", "other",
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
