/* SPDX-License-Identifier: Apache-2.0 */
/* What a container's row lays out for the writer (container/writer.h). */
#ifndef TSR_CONTAINER_WRITER_LAYOUT_H
#define TSR_CONTAINER_WRITER_LAYOUT_H

#include "container/outputs.h"
#include "container/writer.h"
#include "format/zip_members.h"

/* Where an array goes: there is one for each possible plane of a tensor, so it is small. */
struct tsr_place {
	uint64_t offset; /* of its data in @file */
	uint32_t file;
	uint32_t archive, member; /* in which archive */
	uint32_t next; /* its next place, or 0: the same array may be stored more than once */
};

/* An archive, and the file that it is in or is. */
struct tsr_writer_archive {
	size_t file;
	struct tsr_zip_members zip;
};

struct tsr_writer_file {
	uint64_t nbytes;
	struct tsr_text
		header; /* at the start; empty in archives, and in packed files until the end */
	uint64_t header_nbytes;
	size_t first, end; /* arrays of this file */
	size_t first_tensor, end_tensor; /* of a packed file */
	bool plain; /* not packed, though it belongs to a packed one */
	bool coded; /* some of its arrays are */
};

struct tsr_writer {
	struct tsr_writer_plan plan;
	struct tsr_arena *arena; /* has the lists */
	struct tsr_st_entry *arrays; /* a copy, in the order of the output */
	size_t ntags, nplaces;
	struct tsr_place *places; /* per tag; behind these the ones that `next` leads to */
	size_t nfiles;
	struct tsr_writer_file *files;
	bool header_full; /* it has several files since one header would be over the limits */
	struct tsr_outputs outputs;
	bool copies; /* it is written by tsr_writer_copy() */
	size_t first_met; /* of a part: the number of its first file, tsr_part_wrote() */
	struct tsr_file *spool; /* of planes that are to be coded; NULL: there is none */
	uint64_t *
		coded_nbytes; /* per tag: of a coded array, 0 of any other; NULL as long as none is */
	bool *differs; /* per tag: pieces of it are what differs from a base; NULL as long as none is */
	struct tsr_text
		index; /* of a directory; of shards from its publishing on, as it is large */
	uint64_t index_nbytes; /* of what it will have; 0 for one file */
	size_t narchives;
	struct tsr_writer_archive *archives;
};

/* Where the spool has an array. */
uint64_t tsr_writer_spool_at(const struct tsr_writer *w, size_t tag);

/* Room for @n files, and their names. */
enum tsr_status tsr_writer_add_files(struct tsr_writer *w, size_t n, struct tsr_err *err);

/* Room for @n archives, all in the first file as yet. */
enum tsr_status tsr_writer_add_archives(struct tsr_writer *w, size_t n, struct tsr_err *err);

#endif
