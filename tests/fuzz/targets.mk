# SPDX-License-Identifier: Apache-2.0
#
# Fuzz targets: how they are linked, and what runs them.  Included by the Makefile.
#
# A target is fuzz_NAME.c with the other files of tests/fuzz and the library.  In other builds it only replays
# files; where SAN has fuzzer-no-link, libFuzzer runs it.

FUZZ_SRC := $(sort $(wildcard tests/fuzz/fuzz_*.c))
FUZZ_NAMES := $(FUZZ_SRC:tests/fuzz/fuzz_%.c=%)
FUZZ_BIN := $(FUZZ_NAMES:%=$(BUILD)/tests/fuzz_%)
FUZZ_SHARED := $(patsubst %.c,$(BUILD)/obj/%.o,$(filter-out $(FUZZ_SRC) tests/fuzz/replay.c,$(sort $(wildcard tests/fuzz/*.c))))

# File calls go to memory_files.c, and counted edges to cost.c.
FUZZ_CALLS := open openat close pread pwrite fstat stat lstat fstatat fstatfs fsync fchmod chmod fchmodat realpath \
	mkdir mkdirat unlink rmdir unlinkat renameat2 renameat rename opendir readdir closedir lseek getdents64 \
	__sanitizer_cov_trace_pc
FUZZ_CALLS += $(if $(findstring memory,$(SAN)),inflate inflateInit2_ cJSON_ParseWithLengthOpts)
FUZZ_WRAP := $(FUZZ_CALLS:%=-Wl,--wrap=%)

ifneq ($(findstring fuzzer-no-link,$(SAN)),)
FUZZ_ENGINE :=
FUZZ_LINK := -fsanitize=fuzzer -Wl,-rpath,'$$ORIGIN'
# What the targets share is not what is to be covered.
$(FUZZ_SHARED): override CFLAGS += -fno-sanitize=fuzzer-no-link -fno-sanitize-coverage=trace-pc,inline-8bit-counters,pc-table,trace-cmp,indirect-calls
# Hashing is linear in what it is given.
$(BUILD)/obj/src/io/simd/%.o $(BUILD)/obj/src/io/hash.o $(BUILD)/obj/src/io/crc.o: override CFLAGS += -fno-sanitize-coverage=trace-pc
else
FUZZ_ENGINE := $(BUILD)/obj/tests/fuzz/replay.o
FUZZ_LINK :=
endif

$(BUILD)/obj/tests/fuzz.a: $(FUZZ_SHARED)
	$(call say,AR,$@)
	$(Q)rm -f $@ && ar rcs $@ $^

$(BUILD)/tests/fuzz_%: $(BUILD)/obj/tests/fuzz/fuzz_%.o $(FUZZ_ENGINE) $(BUILD)/obj/tests/fuzz/driver.o $(BUILD)/obj/tests/fuzz.a $(BUILD)/libtersor.a
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) $(FUZZ_LINK) $(FUZZ_WRAP) -o $@ -Wl,--start-group $^ -Wl,--end-group $(LDLIBS)

-include $(FUZZ_SRC:%.c=$(BUILD)/obj/%.d) $(FUZZ_SHARED:.o=.d)

check-fuzz: $(FUZZ_BIN)
	@for t in $(FUZZ_NAMES); do \
		find tests/fuzz/corpus/$$t -type f -print0 | xargs -0 $(CHECK_RUN) $(BUILD)/tests/fuzz_$$t || exit 1; done

# The corpora under MemorySanitizer: what is read before it is written.
msan:
	@$(MAKE) --no-print-directory BUILD=$(BUILD)/msan CC=clang GPU=0 CFLAGS='-O1 -gline-tables-only' SAN=memory check-fuzz

# Under libFuzzer, with every edge counted (cost.c), and tiles of one largest group: poisoning larger ones takes most
# of a run's time.
FUZZ_MAKE = $(MAKE) --no-print-directory BUILD=$(BUILD)/fuzz CC=clang GPU=0 WERROR=0 \
	CFLAGS='-O1 -gline-tables-only -fsanitize-coverage=trace-pc -DTSR_TILE_ELEMENTS=65536u' SAN=fuzzer-no-link,address,undefined

# make fuzz: every target, FUZZ_SECONDS each; FUZZ=name: one.  Needs clang.
FUZZ ?= $(FUZZ_NAMES)
FUZZ_SECONDS ?= 600
fuzz:
	+@$(FUZZ_MAKE) $(FUZZ:%=$(BUILD)/fuzz/tests/fuzz_%)
	@for t in $(FUZZ); do \
		mkdir -p $(BUILD)/fuzz/corpus/$$t && \
		$(BUILD)/fuzz/tests/fuzz_$$t -max_total_time=$(FUZZ_SECONDS) -timeout=10 -rss_limit_mb=2048 \
			-artifact_prefix=$(BUILD)/fuzz/$$t- $(BUILD)/fuzz/corpus/$$t tests/fuzz/corpus/$$t || exit 1; \
	done

# What run.sh needs on a machine without a compiler: programs, their libraries, corpora.
fuzz-kit:
	+@$(FUZZ_MAKE) $(FUZZ_NAMES:%=$(BUILD)/fuzz/tests/fuzz_%)
	$(call say,COPY,$(BUILD)/$@)
	$(Q)rm -rf $(BUILD)/$@ && mkdir -p $(BUILD)/$@/bin $(BUILD)/$@/corpus
	$(Q)for t in $(FUZZ_NAMES); do \
		strip -o $(BUILD)/$@/bin/fuzz_$$t $(BUILD)/fuzz/tests/fuzz_$$t && \
		mkdir -p $(BUILD)/$@/corpus/$$t && \
		find tests/fuzz/corpus/$$t -type f -exec cp -t $(BUILD)/$@/corpus/$$t {} + || exit 1; \
	done
	$(Q)ldd $(BUILD)/$@/bin/* | awk '/libcjson|libdeflate|libz\.|libstdc|libgcc/ { print $$3 }' | sort -u | \
		xargs -I{} cp {} $(BUILD)/$@/bin
	$(Q)cp tests/fuzz/run.sh $(BUILD)/$@ && du -sh $(BUILD)/$@
