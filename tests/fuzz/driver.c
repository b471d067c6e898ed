/* SPDX-License-Identifier: Apache-2.0 */
/* From libFuzzer, or replay.c, to the target: cost is bounded, and no file or descriptor remains. */
#include "codec/tables.h"
#include "fuzz.h"
#include "memory_files.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

/* Tables that are made once in a process are no input's cost. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	for (int set = 0; set < TSR_TABLES_COUNT; set++)
		tsr_tables_get((enum tsr_table_set)set);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
	cost_start(nbytes);
	fuzz_input(data, nbytes);
	cost_end();
	memory_clear();
	return 0;
}
