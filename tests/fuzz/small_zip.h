/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_TESTS_SMALL_ZIP_H
#define TSR_TESTS_SMALL_ZIP_H

/* Archives of stored members without checksums, so that what is in them can be anything. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"

struct small_member {
	const char *name;
	const void *data;
	size_t nbytes;
};

static inline uint8_t *small_put(uint8_t *at, uint64_t value, unsigned width)
{
	for (; width--; value >>= 8)
		*at++ = (uint8_t)value;
	return at;
}

/* What both headers of a member have from the flags to the length of the name. */
static inline uint8_t *small_put_sizes(uint8_t *at, const struct small_member *m)
{
	at = small_put(at, 0, 12);
	at = small_put(at, m->nbytes, 4);
	at = small_put(at, m->nbytes, 4);
	return small_put(at, strlen(m->name), 2);
}

/* The archive, to be freed. */
static inline uint8_t *small_zip(const struct small_member *m, size_t n, size_t *nbytes_ret)
{
	size_t room = 22, directory, *headers = calloc(n, sizeof(*headers));
	uint8_t *bytes, *at;

	REQUIRE(headers != NULL);
	for (size_t i = 0; i < n; i++)
		room += 30 + 46 + 2 * strlen(m[i].name) + m[i].nbytes;
	bytes = at = malloc(room);
	REQUIRE(bytes != NULL);
	for (size_t i = 0; i < n; i++) {
		headers[i] = (size_t)(at - bytes);
		at = small_put(at, 0x04034b50, 4);
		at = small_put(at, 0, 2);
		at = small_put(small_put_sizes(at, &m[i]), 0, 2);
		memcpy(at, m[i].name, strlen(m[i].name));
		at += strlen(m[i].name);
		if (m[i].nbytes)
			memcpy(at, m[i].data, m[i].nbytes);
		at += m[i].nbytes;
	}
	directory = (size_t)(at - bytes);
	for (size_t i = 0; i < n; i++) {
		at = small_put(at, 0x02014b50, 4);
		at = small_put(at, 0, 4);
		at = small_put(small_put_sizes(at, &m[i]), 0, 12);
		at = small_put(at, headers[i], 4);
		memcpy(at, m[i].name, strlen(m[i].name));
		at += strlen(m[i].name);
	}
	room = (size_t)(at - bytes) - directory;
	at = small_put(small_put(at, 0x06054b50, 4), 0, 4);
	at = small_put(small_put(at, n, 2), n, 2);
	at = small_put(small_put(at, room, 4), directory, 4);
	at = small_put(at, 0, 2);
	free(headers);
	*nbytes_ret = (size_t)(at - bytes);
	return bytes;
}

#endif
