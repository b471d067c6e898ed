/* SPDX-License-Identifier: Apache-2.0 */
/* Values besides the tensors that differ, as lines and as JSON. */
#include "report/checkpoints/remarks.h"

#define SHOWN 3u

static const char *or_absent(const char *text)
{
	return text ? text : "absent";
}

void tsr_besides_put_text(const struct tsr_besides *b, bool all, struct tsr_text *out)
{
	if (b->not_compared)
		tsr_text_printf(out, "besides tensors: not compared, %s\n", b->not_compared);
	if (!b->ndiffering)
		return;
	tsr_text_printf(out, "besides tensors: %" PRIu64 " value%s%s", b->ndiffering,
			b->ndiffering == 1 ? " differs" : "s differ", all ? "" : " (");
	for (size_t i = 0; i < b->nlisted && (all || i < SHOWN); i++) {
		const struct tsr_value_difference *d = &b->list[i];

		tsr_text_printf(out, "%s%s: %s, %s",
				all ? "\n  "
				: i ? "; "
				    : "",
				d->where, or_absent(d->a), or_absent(d->b));
	}
	if (b->ndiffering > (all ? b->nlisted : SHOWN))
		tsr_text_puts(out, all ? "\n  ..." : "; ...");
	tsr_text_puts(out, all ? "\n" : ")\n");
}

void tsr_besides_put_json(const struct tsr_besides *b, struct tsr_text *json)
{
	tsr_json_open(json, "besides", '{');
	tsr_json_put_string(json, "not_compared", b->not_compared);
	tsr_json_put_u64(json, "differing", b->ndiffering);
	tsr_json_open(json, "values", '[');
	for (size_t i = 0; i < b->nlisted; i++) {
		tsr_json_open(json, NULL, '{');
		tsr_json_put_string(json, "where", b->list[i].where);
		tsr_json_put_string(json, "a", b->list[i].a);
		tsr_json_put_string(json, "b", b->list[i].b);
		tsr_json_close(json, '}');
	}
	tsr_json_close(json, ']');
	tsr_json_close(json, '}');
}
