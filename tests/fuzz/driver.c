/* SPDX-License-Identifier: Apache-2.0 */
/* From libFuzzer, or replay.c, to the target: cost is bounded, and no file or descriptor remains. */
#include "fuzz.h"
#include "memory_files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
	cost_start(nbytes);
	fuzz_input(data, nbytes);
	cost_end();
	memory_clear();
	return 0;
}
