/* SPDX-License-Identifier: Apache-2.0 */
/* The metadata of packed files as JSON: which members an object has, hashes, and what is said of bad ones. */
#include "container/packed/members.h"

#include "base/fail.h"

enum tsr_status tsr_packed_bad(const char *path, const char *name, const char *what,
			       struct tsr_err *err)
{
	if (!name)
		return tsr_fail(err, TSR_E_FORMAT, "%s: packed metadata: %s", path, what);
	return tsr_fail(err, TSR_E_FORMAT, "%s: tensor %.200s: packed metadata: %s", path, name,
			what);
}

bool tsr_packed_has_members(const struct tsr_json *object, const char *const *names, size_t n)
{
	const struct tsr_json *v;
	size_t i = 0;

	if (tsr_json_type(object) != TSR_JSON_OBJECT)
		return false;
	for (v = tsr_json_first(object); v; v = tsr_json_next(v)) {
		while (i < n && names[i][0] == '?' && strcmp(names[i] + 1, tsr_json_key(v)) != 0)
			i++;
		if (i == n || strcmp(names[i] + (names[i][0] == '?'), tsr_json_key(v)) != 0)
			return false;
		i++;
	}
	while (i < n && names[i][0] == '?')
		i++;
	return i == n;
}

bool tsr_packed_read_hash(const struct tsr_json *v, uint64_t *ret)
{
	const char *digits = tsr_json_string(v);

	if (!digits || strlen(digits) != 16 || strspn(digits, "0123456789abcdef") != 16)
		return false;
	*ret = strtoull(digits, NULL, 16);
	return true;
}
