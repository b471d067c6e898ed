/* SPDX-License-Identifier: Apache-2.0 */
/* The known name nearest to a mistyped one. */
#ifndef TSR_TEXT_NEAREST_H
#define TSR_TEXT_NEAREST_H

/* A search: set `wrong`, offer every known name, then read `name`. */
struct tsr_nearest {
	const char *wrong;
	const char *name; /* the nearest one so far; NULL if none is near */
	unsigned distance;
};

void tsr_nearest_offer(struct tsr_nearest *nearest, const char *name);

#endif
