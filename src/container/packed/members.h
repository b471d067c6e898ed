/* SPDX-License-Identifier: Apache-2.0 */
/* The metadata of packed files as JSON: which members an object has, hashes, and what is said of bad ones. */
#ifndef TSR_CONTAINER_PACKED_MEMBERS_H
#define TSR_CONTAINER_PACKED_MEMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tersor/status.h"
#include "text/json.h"

/* TSR_E_FORMAT, with what is wrong with the metadata of a file, or of its tensor @name; NULL: the file's. */
enum tsr_status tsr_packed_bad(const char *path, const char *name, const char *what,
			       struct tsr_err *err);

/* An object with these members in this order, "?" before those that may be absent, and no other. */
bool tsr_packed_has_members(const struct tsr_json *object, const char *const *names, size_t n);

#define TSR_PACKED_HAS_MEMBERS(object, ...) \
	tsr_packed_has_members(object, (const char *const[]){ __VA_ARGS__ }, \
			       sizeof((const char *const[]){ __VA_ARGS__ }) / \
				       sizeof(const char *))

/* A hash of 16 hexadecimal digits. */
bool tsr_packed_read_hash(const struct tsr_json *v, uint64_t *ret);

#endif
