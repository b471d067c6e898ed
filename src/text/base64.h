/* SPDX-License-Identifier: Apache-2.0 */
/* Base64. */
#ifndef TSR_TEXT_BASE64_H
#define TSR_TEXT_BASE64_H

#include "text/text.h"

/* Append the base64 text (RFC 4648, with padding) of @nbytes bytes. */
void tsr_base64_put(struct tsr_text *out, const void *bytes, size_t nbytes);

/* Append the bytes of a base64 text; false unless tsr_base64_put() could have written it. */
bool tsr_base64_get(struct tsr_text *out, const char *text);

#endif
