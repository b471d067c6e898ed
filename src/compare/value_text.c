/* SPDX-License-Identifier: Apache-2.0 */
/* Values in words. */
#include "compare/besides.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/value_walk.h"
#include "tersor/escape.h"

/* The fewest digits that give the same bits. */
static void put_float(const struct tsr_value *v, char out[TSR_VALUE_TEXT])
{
	const double x = tsr_value_real(v);

	if (isnan(x)) {
		snprintf(out, TSR_VALUE_TEXT, "nan (%016" PRIx64 ")", v->real);
		return;
	}
	for (int digits = 1; digits <= 17; digits++) {
		snprintf(out, TSR_VALUE_TEXT, "%.*g", digits, x);
		if (strtod(out, NULL) == x)
			break;
	}
	if (!strpbrk(out, ".eni"))
		strcat(out, ".0");
}

/* An integer past 64 bits in hexadecimal, two's complement as it is stored; or bytes. */
static void put_bytes(const struct tsr_value *v, char out[TSR_VALUE_TEXT])
{
	const bool number = v->type == TSR_VALUE_INT;
	const size_t shown = v->text.nbytes < 32 ? v->text.nbytes : 32;
	size_t n = (size_t)snprintf(out, TSR_VALUE_TEXT, "%s", number ? "0x" : "");

	for (size_t i = 0; i < shown; i++) {
		const size_t at = number ? v->text.nbytes - 1 - i : i;

		n += (size_t)snprintf(out + n, TSR_VALUE_TEXT - n, "%02x",
				      (unsigned char)v->text.bytes[at]);
	}
	snprintf(out + n, TSR_VALUE_TEXT - n, "%s (%s%zu bytes)",
		 shown < v->text.nbytes ? "..." : "", number ? "an int of " : "", v->text.nbytes);
}

void tsr_value_text_of(const struct tsr_value *v, char out[TSR_VALUE_TEXT])
{
	char described[TSR_VALUE_DESCRIBED];
	int64_t number;

	if (v->type == TSR_VALUE_FLOAT)
		put_float(v, out);
	else if (v->type == TSR_VALUE_BYTES ||
		 (v->type == TSR_VALUE_INT && !tsr_value_get_i64(v, &number)))
		put_bytes(v, out);
	else if (tsr_value_is_list(v))
		snprintf(out, TSR_VALUE_TEXT, "%s of %zu", tsr_value_kind(v),
			 v->list.n / (v->type == TSR_VALUE_DICT ? 2 : 1));
	else
		snprintf(out, TSR_VALUE_TEXT, "%s", tsr_value_describe(v, described));
}

void tsr_value_tensor_text(const struct tsr_value *v, const struct tsr_tensor *t,
			   const uint64_t *stride, char out[TSR_VALUE_TEXT])
{
	char name[TSR_VALUE_TEXT / 2];
	size_t n;

	tsr_escape(name, sizeof(name), t->name);
	n = (size_t)snprintf(out, TSR_VALUE_TEXT, "%s %s%s",
			     v->tensor.parameter ? "parameter" : "tensor", name,
			     v->tensor.requires_grad ? " that requires a gradient" : "");
	for (unsigned d = 0; stride && d < t->rank && n < TSR_VALUE_TEXT; d++)
		n += (size_t)snprintf(out + n, TSR_VALUE_TEXT - n, "%s%" PRIu64,
				      d ? " " : " with strides ", stride[d]);
}
