/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers for texts: two maps, from addresses and from contents. */
#include "text/text_numbers.h"

#include <string.h>

struct numbered {
	const char *bytes;
	size_t nbytes, number;
};

static bool same_address(const void *item, const void *key)
{
	const struct numbered *a = item, *b = key;

	return a->bytes == b->bytes && a->nbytes == b->nbytes;
}

static bool same_text(const void *item, const void *key)
{
	const struct numbered *a = item, *b = key;

	return a->nbytes == b->nbytes && memcmp(a->bytes, b->bytes, a->nbytes) == 0;
}

bool tsr_text_number(struct tsr_text_numbers *t, const char *bytes, size_t nbytes, size_t *ret)
{
	const struct numbered key = { bytes, nbytes, t->n };
	struct numbered *here, *text;
	bool is_new;

	t->by_address.item_nbytes = t->by_text.item_nbytes = sizeof(key);
	t->by_address.same = same_address;
	t->by_text.same = same_text;
	here = tsr_map_put(&t->by_address,
			   tsr_map_hash(&t->by_address, &bytes, sizeof(bytes), nbytes), &key,
			   &is_new);
	if (!here)
		return false;
	if (is_new) {
		text = tsr_map_put(&t->by_text, tsr_map_hash(&t->by_text, bytes, nbytes, 0), &key,
				   &is_new);
		if (!text)
			return false;
		if (is_new)
			*text = key, t->n++;
		*here = (struct numbered){ bytes, nbytes, text->number };
	}
	*ret = here->number;
	return true;
}

void tsr_text_numbers_free(struct tsr_text_numbers *t)
{
	tsr_map_free(&t->by_address);
	tsr_map_free(&t->by_text);
	t->n = 0;
}
