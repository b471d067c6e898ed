/* SPDX-License-Identifier: Apache-2.0 */
/* JSON, parsed by cJSON, which no other file uses, once it has passed the check of json_check.c. */
#include "text/json.h"

#include <math.h>

#include <cjson/cJSON.h>

#include "base/fail.h"
#include "text/json_space.h"

enum tsr_status tsr_json_parse(const char *text, size_t nbytes, const struct tsr_json_rules *rules,
			       struct tsr_json **ret, struct tsr_err *err)
{
	cJSON *root;

	TSR_TRY(tsr_json_check(text, nbytes, rules, err));
	root = cJSON_ParseWithLengthOpts(text, nbytes, NULL, 0);
	if (!root)
		return tsr_fail_nomem(err, rules->file);
	*ret = (struct tsr_json *)root;
	return TSR_OK;
}

/* Parse the value at @*at of a text that passed the check; NULL when out of memory. */
static cJSON *take_value(const char *text, size_t nbytes, size_t *at)
{
	const char *end = text + *at;
	cJSON *value = cJSON_ParseWithLengthOpts(text + *at, nbytes - *at, &end, 0);

	*at = (size_t)(end - text);
	return value;
}

/* Whether there is an item at @*at, behind a bracket or a comma, in what @close ends. */
static bool has_item(const char *text, size_t nbytes, size_t *at, char close)
{
	*at = tsr_json_after_space(text, nbytes, *at);
	if (text[*at] != close)
		*at = tsr_json_after_space(text, nbytes, *at + 1);
	return text[*at] != close;
}

enum tsr_status tsr_json_take_member(const char *text, size_t nbytes, size_t *at,
				     const struct tsr_json_rules *rules, struct tsr_json **ret,
				     struct tsr_err *err)
{
	cJSON *key, *value;

	*ret = NULL;
	if (!has_item(text, nbytes, at, '}'))
		return TSR_OK;
	key = take_value(text, nbytes, at);
	*at = tsr_json_after_space(text, nbytes, *at) + 1;
	value = key ? take_value(text, nbytes, at) : NULL;
	if (!value) {
		cJSON_Delete(key);
		return tsr_fail_nomem(err, rules->file);
	}
	value->string = key->valuestring;
	key->valuestring = NULL;
	cJSON_Delete(key);
	*ret = (struct tsr_json *)value;
	return TSR_OK;
}

/* Behind the value at @at of a text that passed the check. */
static size_t after_value(const char *text, size_t nbytes, size_t at)
{
	unsigned depth = 0;
	bool string = false;

	for (at = tsr_json_after_space(text, nbytes, at); at < nbytes; at++) {
		const char c = text[at];

		if (string) {
			string = c != '"';
			at += c == '\\';
		} else if (!depth && (c == ',' || c == '}' || c == ']')) {
			break;
		} else {
			string = c == '"';
			depth += c == '{' || c == '[';
			depth -= c == '}' || c == ']';
		}
	}
	return at < nbytes ? at : nbytes;
}

enum tsr_status tsr_json_find_member(const char *text, size_t nbytes, const char *key,
				     const struct tsr_json_rules *rules, size_t *first_ret,
				     size_t *end_ret, struct tsr_err *err)
{
	size_t at = tsr_json_after_space(text, nbytes, 0);
	bool is = false;

	*first_ret = *end_ret = 0;
	if (at == nbytes || text[at] != '{')
		return TSR_OK;
	at = tsr_json_after_space(text, nbytes, at + 1);
	while (!is && at < nbytes && text[at] == '"') {
		cJSON *found = take_value(text, nbytes, &at);

		if (!found)
			return tsr_fail_nomem(err, rules->file);
		is = strcmp(found->valuestring, key) == 0;
		cJSON_Delete(found);
		*first_ret = tsr_json_after_space(text, nbytes,
						  tsr_json_after_space(text, nbytes, at) + 1);
		*end_ret = after_value(text, nbytes, *first_ret);
		at = tsr_json_after_space(text, nbytes, *end_ret + 1);
	}
	if (!is)
		*first_ret = *end_ret = 0;
	return TSR_OK;
}

size_t tsr_json_count_elements(const char *text, size_t nbytes)
{
	size_t at = tsr_json_after_space(text, nbytes, 1), n = 0;

	while (at < nbytes && text[at] != ']' && text[at] != '}') {
		at = after_value(text, nbytes, at);
		at += at < nbytes && text[at] == ',';
		at = tsr_json_after_space(text, nbytes, at);
		n++;
	}
	return n;
}

/* --- Parsed values -------------------------------------------------------------------------- */

static const cJSON *node(const struct tsr_json *v)
{
	return (const cJSON *)v;
}

void tsr_json_free(struct tsr_json *root)
{
	cJSON_Delete((cJSON *)root);
}

enum tsr_json_type tsr_json_type(const struct tsr_json *v)
{
	if (cJSON_IsObject(node(v)))
		return TSR_JSON_OBJECT;
	if (cJSON_IsArray(node(v)))
		return TSR_JSON_ARRAY;
	if (cJSON_IsString(node(v)))
		return TSR_JSON_STRING;
	if (cJSON_IsNumber(node(v)))
		return TSR_JSON_NUMBER;
	return cJSON_IsBool(node(v)) ? TSR_JSON_BOOL : TSR_JSON_NULL;
}

bool tsr_json_is_list(const struct tsr_json *v)
{
	return cJSON_IsArray(node(v));
}

size_t tsr_json_size(const struct tsr_json *v)
{
	return (size_t)cJSON_GetArraySize(node(v));
}

const struct tsr_json *tsr_json_first(const struct tsr_json *v)
{
	return (const struct tsr_json *)node(v)->child;
}

const struct tsr_json *tsr_json_next(const struct tsr_json *child)
{
	return (const struct tsr_json *)node(child)->next;
}

const char *tsr_json_key(const struct tsr_json *child)
{
	return node(child)->string;
}

const struct tsr_json *tsr_json_get(const struct tsr_json *v, const char *key)
{
	if (!v || tsr_json_type(v) != TSR_JSON_OBJECT)
		return NULL;
	for (const struct tsr_json *c = tsr_json_first(v); c; c = tsr_json_next(c)) {
		if (strcmp(tsr_json_key(c), key) == 0)
			return c;
	}
	return NULL;
}

const char *tsr_json_string(const struct tsr_json *v)
{
	return v && cJSON_IsString(node(v)) ? node(v)->valuestring : NULL;
}

bool tsr_json_bool(const struct tsr_json *v, bool *ret)
{
	if (!v || !cJSON_IsBool(node(v)))
		return false;
	*ret = cJSON_IsTrue(node(v));
	return true;
}

bool tsr_json_double(const struct tsr_json *v, double *ret)
{
	if (!v || !cJSON_IsNumber(node(v)))
		return false;
	*ret = node(v)->valuedouble;
	return true;
}

bool tsr_json_u64(const struct tsr_json *v, uint64_t *ret)
{
	double value;

	if (!tsr_json_double(v, &value) || !(value >= 0 && value <= (double)TSR_JSON_INT_MAX) ||
	    value != floor(value))
		return false;
	*ret = (uint64_t)value;
	return true;
}
