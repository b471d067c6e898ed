/* SPDX-License-Identifier: Apache-2.0 */
/* The keys that lead to a value, kept as they are; text is made of them only for what needs a name. */
#include "names/key_path.h"

#include <stdio.h>

#include "base/fail.h"
#include "base/utf8.h"
#include "tersor/dtype.h"

static void push(struct tsr_key_path *p, struct tsr_key_step step)
{
	/* Trees are checked, so none is deeper. */
	if (p->n < TSR_KEY_PATH_MAX)
		p->steps[p->n++] = step;
}

void tsr_key_path_push(struct tsr_key_path *p, const struct tsr_value *key, size_t index)
{
	struct tsr_key_step step = { .number = (int64_t)index };

	/* bitsandbytes puts one more level around its states. */
	if (tsr_value_is_string(key, "__bnb_optimizer_quant_state__"))
		return;
	if (key->type == TSR_VALUE_STRING) {
		step.bytes = key->text.bytes;
		step.nbytes = key->text.nbytes;
	} else if (key->type == TSR_VALUE_BOOL) {
		step.bytes = key->boolean ? "True" : "False";
		step.nbytes = strlen(step.bytes);
	} else if (key->type == TSR_VALUE_FLOAT) {
		step.real = &key->real;
	} else {
		step.nameless = !tsr_value_get_i64(key, &step.number);
	}
	push(p, step);
}

void tsr_key_path_push_bytes(struct tsr_key_path *p, const char *bytes, size_t nbytes)
{
	push(p, (struct tsr_key_step){ .bytes = bytes, .nbytes = nbytes });
}

void tsr_key_path_push_index(struct tsr_key_path *p, size_t index)
{
	push(p, (struct tsr_key_step){ .number = (int64_t)index });
}

static enum tsr_status check_room(const struct tsr_key_path *p, size_t more, const char *file,
				  struct tsr_err *err)
{
	const struct tsr_text *t = &p->text;

	if (more <= TSR_NAME_MAX && t->nbytes + more <= TSR_NAME_MAX)
		return TSR_OK;
	return tsr_fail(err, TSR_E_LIMIT,
			"%s: tensor %.40s...: its keys make a name over the limit of %u bytes",
			file, t->nbytes ? t->bytes : "", TSR_NAME_MAX);
}

/* The shorter of two texts that say exactly this number. */
static void put_real(struct tsr_text *text, const uint64_t *bits)
{
	char out[32];
	double real;

	memcpy(&real, bits, sizeof(real));
	snprintf(out, sizeof(out), "%.15g", real);
	if (strtod(out, NULL) != real)
		snprintf(out, sizeof(out), "%.17g", real);
	tsr_text_puts(text, out);
}

static enum tsr_status put_step(struct tsr_key_path *p, const struct tsr_key_step *s,
				const char *file, struct tsr_err *err)
{
	const bool nameless = s->nameless || (s->bytes && s->nbytes <= TSR_NAME_MAX &&
					      !tsr_utf8_is_string(s->bytes, s->nbytes));

	TSR_TRY(check_room(p, (p->text.nbytes != 0) + s->nbytes, file, err));
	if (p->text.nbytes)
		tsr_text_puts(&p->text, ".");
	if (nameless)
		tsr_text_printf(&p->text, "(%" PRId64 ")", s->number);
	else if (s->bytes)
		tsr_text_put(&p->text, s->bytes, s->nbytes);
	else if (s->real)
		put_real(&p->text, s->real);
	else
		tsr_text_printf(&p->text, "%" PRId64, s->number);
	return p->text.failed ? tsr_fail_nomem(err, file) : TSR_OK;
}

enum tsr_status tsr_key_path_text(struct tsr_key_path *p, size_t dropped, size_t *from_ret,
				  const char *file, struct tsr_err *err)
{
	size_t from = 0;

	p->text.nbytes = 0;
	tsr_text_puts(&p->text, "");
	for (size_t i = 0; i < p->n; i++) {
		TSR_TRY(put_step(p, &p->steps[i], file, err));
		if (i + 1 == dropped)
			from = p->text.nbytes;
	}
	if (p->text.failed)
		return tsr_fail_nomem(err, file);
	TSR_TRY(check_room(p, 0, file, err));
	if (from_ret)
		*from_ret = from;
	return TSR_OK;
}

void tsr_key_path_free(struct tsr_key_path *p)
{
	tsr_text_free(&p->text);
}
