/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of codes in device memory. */
#include "gpu/cuda.h"

extern "C" {
#include "codec/tables.h"
}

/* One array of the tables. */
static cudaError_t upload(const void *from, size_t nbytes, const void **to)
{
	void *memory = NULL;
	cudaError_t e = cudaMalloc(&memory, nbytes);

	if (e == cudaSuccess)
		e = cudaMemcpy(memory, from, nbytes, cudaMemcpyHostToDevice);
	if (e != cudaSuccess) {
		cudaFree(memory);
		return e;
	}
	*to = memory;
	return e;
}

static void free_tables(struct tsr_gpu_tables *t)
{
	cudaFree((void *)t->row);
	cudaFree((void *)t->entry);
	cudaFree((void *)t->bound);
	*t = (struct tsr_gpu_tables){ NULL, NULL, NULL };
}

static enum tsr_status put_tables(struct tsr_gpu *gpu, enum tsr_table_set set, struct tsr_err *err)
{
	const struct tsr_tables *from = tsr_tables_get(set);
	struct tsr_gpu_tables t = { NULL, NULL, NULL };
	cudaError_t e = upload(from->entry, from->nentries * sizeof(*from->entry),
			       (const void **)&t.entry);

	if (e == cudaSuccess && from->bound)
		e = upload(from->bound, TSR_TABLE_ROWS * sizeof(*from->bound),
			   (const void **)&t.bound);
	if (e == cudaSuccess)
		e = upload(from->row, from->nrows * sizeof(*from->row), (const void **)&t.row);
	if (e != cudaSuccess) {
		free_tables(&t);
		return tsr_gpu_fail(err, gpu->index, e, "cannot copy tables of codes");
	}
	gpu->tables[set] = t;
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
	for (unsigned set = 0; set < TSR_TABLES_COUNT; set++)
		free_tables(&gpu->tables[set]);
}
