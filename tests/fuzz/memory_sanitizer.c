/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What MemorySanitizer cannot see, as it is in libraries that are not built with it: cJSON and zlib write memory.
 * The targets' calls of them come here (targets.mk), which says so.
 */
#include <cjson/cJSON.h>
#include <stdlib.h>
#include <zlib.h>

#if defined(__has_feature)
#if __has_feature(memory_sanitizer)

#include <sanitizer/msan_interface.h>

int __real_inflate(z_streamp z, int flush);
int __wrap_inflate(z_streamp z, int flush);
int __real_inflateInit2_(z_streamp z, int bits, const char *version, int nbytes);
int __wrap_inflateInit2_(z_streamp z, int bits, const char *version, int nbytes);
cJSON *__real_cJSON_ParseWithLengthOpts(const char *text, size_t n, const char **end, cJSON_bool whole);
cJSON *__wrap_cJSON_ParseWithLengthOpts(const char *text, size_t n, const char **end, cJSON_bool whole);

int __wrap_inflate(z_streamp z, int flush)
{
	const Bytef *out = z->next_out;
	const int code = __real_inflate(z, flush);

	__msan_unpoison(z, sizeof(*z));
	__msan_unpoison(out, (size_t)(z->next_out - out));
	return code;
}

int __wrap_inflateInit2_(z_streamp z, int bits, const char *version, int nbytes)
{
	const int code = __real_inflateInit2_(z, bits, version, nbytes);

	__msan_unpoison(z, sizeof(*z));
	return code;
}

/* What cJSON allocates it fills. */
static void *allocate(size_t nbytes)
{
	return calloc(1, nbytes);
}

cJSON *__wrap_cJSON_ParseWithLengthOpts(const char *text, size_t n, const char **end, cJSON_bool whole)
{
	static cJSON_Hooks hooks = { allocate, free };
	cJSON *root;

	cJSON_InitHooks(&hooks);
	/* All of the text counts: what is not there yet is found here. */
	__msan_check_mem_is_initialized(text, n);
	root = __real_cJSON_ParseWithLengthOpts(text, n, end, whole);
	if (end)
		__msan_unpoison(end, sizeof(*end));
	return root;
}

#endif
#endif
