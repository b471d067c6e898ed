/* SPDX-License-Identifier: Apache-2.0 */
/* Import of the 16-bit remainders of weights that TransformerEngine and Apex keep. */
#include "names/transformer_engine_import.h"

static const struct tsr_codec *codec_of(enum tsr_dtype narrow, enum tsr_dtype rest)
{
	return narrow == TSR_BF16 && rest == TSR_I16 ? tsr_codec_find("bf16+exact16") : NULL;
}

enum tsr_status tsr_import_transformer_engine(struct tsr_importing *m, size_t i)
{
	return tsr_import_weight(m, i, ".master_param", codec_of);
}
