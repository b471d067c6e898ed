/* SPDX-License-Identifier: Apache-2.0 */
/* The header of a safetensors file. */
#ifndef TSR_FORMAT_SAFETENSORS_H
#define TSR_FORMAT_SAFETENSORS_H

#include "base/arena.h"
#include "text/json.h"
#include "text/text.h"
#include "tersor/dtype.h"
#include "tersor/status.h"

/* The reference's limit on the length of a header. */
#define TSR_ST_HEADER_MAX UINT64_C(100000000)

/* The limit on JSON values in a header: 7 per tensor of rank 1 and 1 per further dimension. */
#define TSR_ST_VALUES_MAX 2000000u

/* One array. */
struct tsr_st_entry {
	const char *name; /* borrowed by a writer, as @shape is */
	enum tsr_dtype dtype;
	unsigned rank;
	const uint64_t *shape;
	uint64_t numel; /* the product of @shape; set by a reader only */
	uint64_t nbytes;
	uint64_t offset; /* for a writer: in the data; set by tsr_st_layout() */
	size_t tag; /* the caller's; of a reader the place in the header */
};

/* --- Reading -------------------------------------------------------------------------------- */

/* The rules for the text of a header. */
struct tsr_json_rules tsr_st_rules(const char *path);

/* Metadata of so many bytes is text to be parsed, such as that of a packed file. */
#define TSR_ST_META_LARGE 65536u

/* What one file holds.  Owned by the caller; see tsr_st_contents_free().  Texts are in an arena. */
struct tsr_st_contents {
	size_t narrays;
	struct tsr_st_entry *arrays; /* in the order of their data; offsets are those in the file */
	size_t nmeta;
	struct tsr_meta *meta; /* in the order of the header */
	/* Values of TSR_ST_META_LARGE bytes or more, not in the arena: who keeps one copies it. */
	char **large;
	size_t nlarge;
	char *header; /* the header's bytes, NUL-terminated */
	uint64_t header_nbytes;
};

/**
 * tsr_st_read() - Read and check the header of a safetensors file
 * @arena: what holds names, shapes and metadata
 * @ret: out: filled; untouched on failure
 *
 * Everything that the reference checks, and: exactly the three members in an entry, no duplicate
 * keys, integers at most 2^48-1, rank at most TSR_RANK_MAX.
 */
enum tsr_status tsr_st_read(const struct tsr_file *f, struct tsr_arena *arena,
			    struct tsr_st_contents *ret, struct tsr_err *err);
void tsr_st_contents_free(struct tsr_st_contents *c);

/* The header is needed no more, only what was found in it. */
void tsr_st_drop_header(struct tsr_st_contents *c);

/* --- Writing -------------------------------------------------------------------------------- */

/* The reference's order: later dtypes first, so that everything is aligned; then by name. */
void tsr_st_sort(struct tsr_st_entry *entries, size_t n);

/* By their tags: what was read comes into the order of the header. */
void tsr_st_sort_by_tag(struct tsr_st_entry *entries, size_t n);

/* Place the arrays one after the other in the order given; returns their total bytes. */
uint64_t tsr_st_layout(struct tsr_st_entry *entries, size_t n);

/* The member of a header that describes one array. */
void tsr_st_put_entry(const struct tsr_st_entry *e, struct tsr_text *json);

/* The JSON text of a header: `__metadata__` if there is any, then the entries in their order. */
void tsr_st_compose(const struct tsr_st_entry *entries, size_t n, const struct tsr_meta *meta,
		    size_t nmeta, struct tsr_text *json);

/*
 * Put the 8 bytes of the length in front and pad with spaces to @json_nbytes rounded up to a
 * multiple of 8.  TSR_E_LIMIT if that is more than a reader accepts.
 */
enum tsr_status tsr_st_frame(struct tsr_text *json, uint64_t json_nbytes, const char *path,
			     struct tsr_err *err);

#endif
