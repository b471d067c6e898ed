/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of codes in device memory. */
#include "gpu/cuda.h"

extern "C" {
#include "codec/tables.h"
}

/* One array of the tables, unless an earlier try left it there. */
static enum tsr_status upload(const struct tsr_gpu *gpu, const void *from, size_t nbytes,
			      const void **to, struct tsr_err *err)
{
	const char *what = "cannot copy tables of codes";

	if (!*to)
		TSR_CUDA_TRY(gpu->index, err, cudaMalloc((void **)to, nbytes), "%s", what);
	TSR_CUDA_TRY(gpu->index, err, cudaMemcpy((void *)*to, from, nbytes, cudaMemcpyHostToDevice),
		     "%s", what);
	return TSR_OK;
}

static enum tsr_status put_tables(struct tsr_gpu *gpu, enum tsr_table_set set, struct tsr_err *err)
{
	const struct tsr_tables *from = tsr_tables_get(set);
	struct tsr_gpu_tables *t = &gpu->tables[set];
	const void *row = NULL;

	TSR_TRY(upload(gpu, from->entry, from->nentries * sizeof(*from->entry),
		       (const void **)&t->entry, err));
	if (from->bound)
		TSR_TRY(upload(gpu, from->bound, TSR_TABLE_ROWS * sizeof(*from->bound),
			       (const void **)&t->bound, err));
	TSR_TRY(upload(gpu, from->row, from->nrows * sizeof(*from->row), &row, err));
	t->row = (const struct tsr_table_row *)row;
	return TSR_OK;
}

enum tsr_status tsr_gpu_prepare_tables(struct tsr_gpu *gpu, const struct tsr_gpu_codec *codec,
				       struct tsr_err *err)
{
	const enum tsr_table_set set = codec->tables;
	enum tsr_status status = TSR_OK;

	if (set == TSR_TABLES_COUNT)
		return TSR_OK;
	pthread_mutex_lock(&gpu->lock);
	if (!gpu->tables[set].row)
		status = put_tables(gpu, set, err);
	pthread_mutex_unlock(&gpu->lock);
	return status;
}

void tsr_gpu_free_tables(struct tsr_gpu *gpu)
{
	cudaSetDevice((int)gpu->index);
	for (unsigned set = 0; set < TSR_TABLES_COUNT; set++) {
		cudaFree((void *)gpu->tables[set].row);
		cudaFree((void *)gpu->tables[set].entry);
		cudaFree((void *)gpu->tables[set].bound);
	}
}
