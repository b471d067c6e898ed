/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch's names of element types. */
#include <string.h>

#include "torch/torch.h"
#include "text/bytes.h"

static const struct tsr_torch_dtype dtypes[] = {
	{ TSR_BOOL, "BoolStorage", "bool" },
	{ TSR_U8, "ByteStorage", "uint8" },
	{ TSR_I8, "CharStorage", "int8" },
	{ TSR_F8_E5M2, NULL, "float8_e5m2" },
	{ TSR_F8_E4M3, NULL, "float8_e4m3fn" },
	{ TSR_F8_E8M0, NULL, "float8_e8m0fnu" },
	{ TSR_F8_E4M3FNUZ, NULL, "float8_e4m3fnuz" },
	{ TSR_F8_E5M2FNUZ, NULL, "float8_e5m2fnuz" },
	{ TSR_I16, "ShortStorage", "int16" },
	{ TSR_U16, NULL, "uint16" },
	{ TSR_F16, "HalfStorage", "float16" },
	{ TSR_BF16, "BFloat16Storage", "bfloat16" },
	{ TSR_I32, "IntStorage", "int32" },
	{ TSR_U32, NULL, "uint32" },
	{ TSR_F32, "FloatStorage", "float32" },
	{ TSR_C64, "ComplexFloatStorage", "complex64" },
	{ TSR_F64, "DoubleStorage", "float64" },
	{ TSR_I64, "LongStorage", "int64" },
	{ TSR_U64, NULL, "uint64" },
};
#define DTYPE_COUNT (sizeof(dtypes) / sizeof(*dtypes))

/* Those that no tensor may have here, but that may stand as values. */
static const char others[] =
	"complex32 complex128 qint8 quint8 qint32 quint4x2 quint2x4 bits1x8 bits2x4 bits4x2 "
	"bits8 bits16 uint1 uint2 uint3 uint4 uint5 uint6 uint7 int1 int2 int3 int4 int5 int6 "
	"int7 float4_e2m1fn_x2";

const struct tsr_torch_dtype *tsr_torch_dtype(enum tsr_dtype dtype)
{
	for (size_t i = 0; i < DTYPE_COUNT; i++) {
		if (dtypes[i].dtype == dtype)
			return &dtypes[i];
	}
	return NULL;
}

const struct tsr_torch_dtype *tsr_torch_dtype_by_name(const char *name)
{
	for (size_t i = 0; i < DTYPE_COUNT; i++) {
		if (strcmp(dtypes[i].name, name) == 0)
			return &dtypes[i];
	}
	return NULL;
}

const struct tsr_torch_dtype *tsr_torch_dtype_by_value(const struct tsr_value *v)
{
	if (v->type != TSR_VALUE_GLOBAL || strcmp(v->global.module, "torch") != 0)
		return NULL;
	return tsr_torch_dtype_by_name(v->global.name);
}

const struct tsr_torch_dtype *tsr_torch_dtype_by_storage(const char *storage)
{
	for (size_t i = 0; i < DTYPE_COUNT; i++) {
		if (dtypes[i].storage && strcmp(dtypes[i].storage, storage) == 0)
			return &dtypes[i];
	}
	return NULL;
}

bool tsr_torch_is_dtype(const char *name)
{
	return tsr_is_word(others, name) || tsr_torch_dtype_by_name(name) != NULL;
}
