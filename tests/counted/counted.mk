# SPDX-License-Identifier: Apache-2.0
#
# The tool with counters in its parsers (counts.c).  Kernels and charts are those of the tool.  Included by the
# Makefile.

COUNTED := $(BUILD)/counted/tersor
UNCOUNTED := $(SIMD_SRC) $(filter src/codec/% src/step/% src/sweep/% src/bench/% src/report/charts/% src/gpu/% src/io/hash.c,$(LIB_SRC) $(CLI_SRC))
COUNTED_OBJ := $(patsubst %.c,$(BUILD)/counted/%.o,$(filter-out $(UNCOUNTED),$(LIB_SRC) $(CLI_SRC)))
COUNTED_CC := $(if $(IS_CLANG),gcc,$(CC))
COUNTED_CALLS := memcpy memmove memset memcmp strcmp strncmp strlen strchr strrchr strstr memchr pread pwrite inflate tsr_hash snprintf vsnprintf

$(BUILD)/counted/%.o: %.c $(FLAGS_FILE) | $(LIBRARIES)
	$(call say,CC,$< (counted))
	@mkdir -p $(@D)
	$(Q)$(COUNTED_CC) $(CPPFLAGS) -std=c11 -O0 -fno-builtin -pthread -fsanitize-coverage=trace-pc -MMD -MP -c $< -o $@

$(COUNTED): $(COUNTED_OBJ) tests/counted/counts.c $(BUILD)/libtersor.a $(CLI_OBJ)
	$(call say,LD,$@)
	$(Q)$(COUNTED_CC) $(CPPFLAGS) -O2 $(LDFLAGS) $(COUNTED_CALLS:%=-Wl,--wrap=%) -o $@ tests/counted/counts.c $(COUNTED_OBJ) \
		$(filter $(BUILD)/obj/src/bench/% $(BUILD)/obj/src/report/charts/%,$(CLI_OBJ)) $(BUILD)/libtersor.a $(LDLIBS)

-include $(COUNTED_OBJ:.o=.d)
