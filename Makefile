# SPDX-License-Identifier: Apache-2.0
#
# make demo     install what is needed, build, and show what tersor does
# make check    install what is needed, build, and run the tests
# make help     all targets and variables

BUILD ?= build
PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
DATADIR ?= $(PREFIX)/share
MANDIR ?= $(DATADIR)/man
DESTDIR ?=
CC = gcc
NVCC ?= nvcc
MPICC ?= mpicc
PYTHON ?= /usr/bin/python3
V ?= 0
WERROR ?= 0
SAN ?=

# What a target builds and tests for itself runs on all processors, unless make was told with -j.
NPROC := $(shell nproc)
SUBMAKE = $(MAKE) --no-print-directory $(if $(findstring jobserver,$(MAKEFLAGS)),,-j$(NPROC))

# GPU=1: with CUDA; GPU=0: without.  By default with it where nvcc is on the PATH.
GPU ?= $(if $(shell command -v $(NVCC) 2>/dev/null),1,0)

VERSION := $(shell sed -n 's/.*TSR_VERSION "\(.*\)"/\1/p' include/tersor/version.h)
SO_NAME := libtersor.so.1

# --- Flags ----------------------------------------------------------------------------------
#
# Those that keep the numerics contract come last and cannot be overridden (docs/internals/numerics.md).

CFLAGS ?= -O2 -g
NVCCFLAGS ?= -O3
GENCODE ?= -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 \
	-gencode arch=compute_90,code=compute_90
WARN := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes \
	-Wvla -Wundef $(if $(filter 1,$(WERROR)),-Werror)
SAN_FLAGS := $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=all)
CONTRACT := -ffp-contract=off -fno-fast-math -fno-math-errno -fno-trapping-math -fexcess-precision=standard
CONTRACT_clang := -ffp-contract=off -fno-fast-math -fno-math-errno -fno-trapping-math
IS_CLANG := $(findstring clang,$(shell $(CC) --version 2>/dev/null))

override CPPFLAGS += -Iinclude -Isrc -D_GNU_SOURCE
override CFLAGS += -std=c11 -fPIC -fvisibility=hidden -pthread $(WARN) $(SAN_FLAGS) \
	$(if $(IS_CLANG),$(CONTRACT_clang),$(CONTRACT))
override NVCCFLAGS += -std=c++17 $(GENCODE) -Iinclude -Isrc -Xcompiler -fPIC,-fvisibility=hidden,-ffp-contract=off,-fno-threadsafe-statics \
	--fmad=false --ftz=false --prec-div=true --prec-sqrt=true
override LDFLAGS += -pthread $(SAN_FLAGS)
LDLIBS_CPU := -lcjson -ldeflate -lz -lm
LDLIBS = $(LDLIBS_CPU)

ISAS_x86_64 := base avx2 avx512
ISAS := $(or $(ISAS_$(firstword $(subst -, ,$(shell $(CC) -dumpmachine 2>/dev/null)))),base)
ISA_FLAGS_base :=
ISA_FLAGS_avx2 := -march=x86-64-v3
ISA_FLAGS_avx512 := -march=x86-64-v4

# --- Sources --------------------------------------------------------------------------------

LIB_DIRS := base io text parts format codec step entropy ckpt names torch container layouts learn pack compare audit directory store sweep recording replay bisect
TOOL_DIRS := render report bench cli
SIMD_SRC := $(sort $(wildcard src/*/simd/*.c))
LIB_SRC := $(sort $(filter-out $(SIMD_SRC),$(foreach dir,$(LIB_DIRS),$(wildcard src/$(dir)/*.c src/$(dir)/*/*.c))))
MPI_SRC := $(wildcard src/cli/mpi/*.c)
CLI_SRC := $(sort $(filter-out $(MPI_SRC),$(foreach dir,$(TOOL_DIRS),$(wildcard src/$(dir)/*.c src/$(dir)/*/*.c))))
GPU_SRC := $(sort $(wildcard src/gpu/*.cu src/gpu/*/*.cu))
UNIT_SRC := $(sort $(wildcard tests/unit/test_*.c))
C_FILES := $(shell find src include -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' | sort)

ifeq ($(GPU),1)
GPU_OBJ := $(GPU_SRC:%.cu=$(BUILD)/obj/%.o)
CUDA_HOME ?= $(patsubst %/bin/,%,$(dir $(realpath $(shell command -v $(NVCC)))))
LDLIBS_GPU := -L$(CUDA_HOME)/lib64 -lcudart_static -lrt -ldl
ifeq ($(notdir $(patsubst %/nvcc,%,$(NVCC))),emulate)
GPU_OBJ += $(BUILD)/obj/tests/gpu/emulate/emulate.o
LDLIBS_GPU := -lstdc++
endif
LDLIBS += $(LDLIBS_GPU)
else
GPU_OBJ := $(BUILD)/obj/src/gpu/gpu_stub.o
endif

LIB_OBJ := $(LIB_SRC:%.c=$(BUILD)/obj/%.o) \
	$(foreach isa,$(ISAS),$(SIMD_SRC:%.c=$(BUILD)/obj/%.$(isa).o)) $(GPU_OBJ)
CLI_OBJ := $(CLI_SRC:%.c=$(BUILD)/obj/%.o)
GPU_TEST_OBJ := $(patsubst %,$(BUILD)/obj/%.o,$(basename $(wildcard tests/gpu/*.c tests/gpu/*.cu)))
UNIT_BIN := $(UNIT_SRC:tests/unit/%.c=$(BUILD)/tests/%)
FAULTS := $(BUILD)/tests/libfaults.so

Q := $(if $(filter 1,$(V)),,@)
say = $(if $(filter 1,$(V)),,@printf '  %-6s %s\n' $(1) '$(2)')

.PHONY: all mpi dist check check-build compare check-unit check-fuzz fuzz fuzz-kit msan check-cli check-frozen check-long check-frameworks check-gpu check-emulated gpu-kit mutants \
	demo bench lint format asan ubsan sanitized coverage install uninstall clean help setup setup-check
.DELETE_ON_ERROR:
.SUFFIXES:
.SECONDARY:

all: $(BUILD)/tersor $(BUILD)/libtersor.a $(BUILD)/libtersor.so

include tests/fuzz/targets.mk
include tests/counted/counted.mk
include packaging/packaging.mk
include packaging/static/static.mk
include packaging/release.mk

# --- Building -------------------------------------------------------------------------------

# Everything depends on the flags it is built with: changing them rebuilds it.
FLAGS := $(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) $(LDLIBS) GPU=$(GPU)
FLAGS_FILE := $(BUILD)/flags
CUDA_FLAGS := $(NVCC) $(NVCCFLAGS)
CUDA_FLAGS_FILE := $(BUILD)/flags-cuda

# A file with the flags, which is made anew when they change.
define flags_rule
ifneq ($$($(1)),$$(if $$(wildcard $$($(1)_FILE)),$$(shell cat $$($(1)_FILE))))
.PHONY: $$($(1)_FILE)
endif
$$($(1)_FILE):
	@mkdir -p $$(@D)
	@printf '%s\n' '$$($(1))' > $$@
endef
$(eval $(call flags_rule,FLAGS))
$(eval $(call flags_rule,CUDA_FLAGS))

# Without its libraries nothing is compiled: make says which packages to install.
LIBRARIES := $(BUILD)/libraries
$(LIBRARIES): .ci/setup $(FLAGS_FILE)
	@CC='$(CC)' CPPFLAGS='$(CPPFLAGS)' .ci/setup --missing build
	@touch $@

$(BUILD)/obj/%.o: %.c $(FLAGS_FILE) | $(LIBRARIES)
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c $< -o $@

$(BUILD)/obj/src/render/page.o: src/render/page.css src/render/page.js src/render/tables.js
$(BUILD)/obj/src/render/plot.o: src/render/plot.css
$(BUILD)/obj/src/cli/help.o: man/help/options.txt
$(BUILD)/obj/src/cli/commands/cmd_completion.o: $(wildcard packaging/completion/tersor.*)
$(foreach n,$(filter-out %/options.txt,$(wildcard man/help/*.txt)),$(eval \
  $(BUILD)/obj/src/cli/commands/cmd_$(basename $(notdir $n)).o: $n))
$(foreach n,$(wildcard src/report/notes/*.html),$(eval \
  $(BUILD)/obj/src/report/$(firstword $(subst _, ,$(basename $(notdir $n))))_report.o: $n))

define simd_rule
$(SIMD_SRC:%.c=$(BUILD)/obj/%.$(1).o): $(BUILD)/obj/%.$(1).o: %.c $(FLAGS_FILE) | $(LIBRARIES)
	$$(call say,CC,$$< ($(1)))
	@mkdir -p $$(@D)
	$$(Q)$$(CC) $$(CPPFLAGS) $$(CFLAGS) -O3 -Wno-psabi $(ISA_FLAGS_$(1)) -DTSR_ISA=$(1) -MMD -MP -c $$< -o $$@
endef
$(foreach isa,$(ISAS),$(eval $(call simd_rule,$(isa))))

$(BUILD)/obj/%.o: %.cu $(CUDA_FLAGS_FILE)
	$(call say,NVCC,$<)
	@mkdir -p $(@D)
	$(Q)$(NVCC) $(NVCCFLAGS) -MD -MP -MF $(@:.o=.d) -c $< -o $@

$(BUILD)/libtersor.a: $(LIB_OBJ)
	$(call say,AR,$@)
	$(Q)rm -f $@ && ar rcs $@ $^

$(BUILD)/libtersor.so: $(LIB_OBJ) src/tersor.map
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS) -shared -Wl,-soname,$(SO_NAME) $(if $(SAN),,-Wl,--no-undefined) -Wl,--version-script,src/tersor.map \
		-o $@ $(LIB_OBJ) $(LDLIBS)

$(BUILD)/tersor: $(CLI_OBJ) $(BUILD)/libtersor.a
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS) -ldl

# tersor-mpi: the same objects with another main(), compiled and linked by MPI's compiler.  mpicc makes
# tersor-mpi, mpicc.mpich tersor-mpi.mpich: a build can have several, and the tests run all.
MPI_NAME := $(patsubst mpicc%,tersor-mpi%,$(notdir $(MPICC)))
MPI_OBJ := $(patsubst %.c,$(BUILD)/obj/$(MPI_NAME)/%.o,$(sort $(MPI_SRC)))
MPI_CC := OMPI_CC='$(CC)' MPICH_CC='$(CC)' $(MPICC)

mpi: $(BUILD)/$(MPI_NAME)

$(BUILD)/obj/$(MPI_NAME)/%.o: %.c $(FLAGS_FILE) | $(LIBRARIES)
	@command -v '$(MPICC)' >/dev/null || { \
		echo "make mpi needs $(MPICC): apt-get install libopenmpi-dev openmpi-bin, or libmpich-dev mpich" >&2; exit 1; }
	$(call say,MPICC,$<)
	@mkdir -p $(@D)
	$(Q)$(MPI_CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c $< -o $@

$(BUILD)/$(MPI_NAME): $(MPI_OBJ) $(BUILD)/obj/tool.a $(BUILD)/libtersor.a
	$(call say,LD,$@)
	$(Q)$(MPI_CC) $(LDFLAGS) -o $@ $^ $(LDLIBS) -ldl

# The tool without its main(): what unit tests of reports and tables are linked with.
$(BUILD)/obj/tool.a: $(filter-out %/main.o,$(CLI_OBJ))
	$(call say,AR,$@)
	$(Q)rm -f $@ && ar rcs $@ $^

$(BUILD)/tests/%: $(BUILD)/obj/tests/unit/%.o $(BUILD)/obj/tool.a $(BUILD)/libtersor.a
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ -lcmocka $(LDLIBS) -ldl

# Needs no library but the C library and the driver: it also runs where only these are.
$(BUILD)/tests/check_gpu: $(GPU_TEST_OBJ) $(BUILD)/libtersor.a
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS_GPU) -lm

$(FAULTS): tests/faults/faults.c
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -shared -fPIC -O1 -o $@ $< -ldl

-include $(LIB_OBJ:.o=.d) $(CLI_OBJ:.o=.d) $(MPI_OBJ:.o=.d) $(GPU_TEST_OBJ:.o=.d) $(UNIT_SRC:%.c=$(BUILD)/obj/%.d)

# --- Set-up: says what it installs, and installs it where it may ---------------------------

setup:
	@.ci/setup build

setup-check:
	@.ci/setup check

VENV := $(BUILD)/venv
$(VENV)/ready: tests/requirements.txt
	$(call say,VENV,$(VENV))
	$(Q)$(PYTHON) -m venv $(VENV)
	$(Q)$(VENV)/bin/pip install --quiet --disable-pip-version-check -r $<
	@touch $@

# The steps after a set-up are a second make: what it installs decides how things are built.
demo: setup
	@$(SUBMAKE) $(BUILD)/tersor
	@tests/demo.sh $(BUILD)/tersor

# --- Tests ----------------------------------------------------------------------------------

check: setup-check
	@$(SUBMAKE) check-build
	@$(MAKE) --no-print-directory check-unit check-cli

check-build: $(BUILD)/tersor $(BUILD)/libtersor.so $(UNIT_BIN) $(FUZZ_BIN) $(FAULTS) $(COUNTED) $(VENV)/ready
	@for c in mpicc.openmpi mpicc.mpich; do \
		! command -v $$c >/dev/null || $(MAKE) --no-print-directory MPICC=$$c mpi || exit 1; done

# CHECK_RUN: what runs programs that this machine cannot run itself.
CHECK_RUN ?=
check-unit: $(UNIT_BIN) check-fuzz
	@printf '%s\n' $(UNIT_BIN) | xargs -P $(NPROC) -I{} sh -c \
		"$(CHECK_RUN) {} > {}.log 2>&1 && echo '  TEST   {}' || { cat {}.log; exit 255; }"

check-cli: $(BUILD)/tersor $(BUILD)/libtersor.so $(FAULTS) $(COUNTED) $(VENV)/ready
	$(Q)TERSOR=$(abspath $(BUILD)/tersor) TERSOR_FAULTS=$(abspath $(FAULTS)) \
		$(VENV)/bin/python -m pytest -q -p no:cacheprovider -n $(NPROC) tests $(PYTEST_ARGS)

# Outputs of some hundred commands are what they were; tests/frozen/run.py says when to --update.
check-frozen: $(BUILD)/tersor
	$(PYTHON) tests/frozen/run.py --tersor $<

# The tests of check are among them.
check-long: setup-check
	@.ci/setup check-long
	@$(SUBMAKE) check-build
	@$(MAKE) --no-print-directory TERSOR_LONG=1 check-unit check-cli
	@$(MAKE) --no-print-directory check-frameworks
ifdef TERSOR_LONG
export TERSOR_LONG
endif

# Freshly made checkpoints of frameworks and optimizers, in an environment with what of them installs here, or by
# FRAMEWORKS_PYTHON.  It ends: FRAMEWORKS_MINUTES for each of the two, and what is not reached is named.
FRAMEWORKS := $(BUILD)/frameworks
FRAMEWORKS_PYTHON ?= $(FRAMEWORKS)/venv/bin/python
FRAMEWORKS_MINUTES ?= 40
$(FRAMEWORKS)/venv/bin/python: tests/compare/frameworks.txt
	$(call say,VENV,$(FRAMEWORKS)/venv)
	$(Q)$(PYTHON) -m venv $(FRAMEWORKS)/venv
	$(Q)tr ' ' '\n' < $< > $(FRAMEWORKS)/versions.txt
	$(Q)while read -r names; do \
		timeout 900 $@ -m pip install --quiet --disable-pip-version-check -c $(FRAMEWORKS)/versions.txt $$names || \
		echo "make check-frameworks: not installed here, so left out: $$names" >&2; done < $<
	@touch $@
check-frameworks: $(BUILD)/tersor $(FRAMEWORKS_PYTHON)
	$(Q)if ! $(FRAMEWORKS_PYTHON) -c 'import torch, numpy, safetensors' 2>/dev/null; then \
		echo 'make check-frameworks: skipped, since PyTorch is not installed here' >&2; exit 0; fi; \
	mkdir -p $(FRAMEWORKS) && export TERSOR=$(abspath $(BUILD)/tersor) && \
	$(FRAMEWORKS_PYTHON) tests/compare/frameworks.py --minutes $(FRAMEWORKS_MINUTES) -o $(FRAMEWORKS)/frameworks.md && \
	$(FRAMEWORKS_PYTHON) tests/compare/jobs.py && \
	$(FRAMEWORKS_PYTHON) tests/compare/optimizers.py --roundtrip --minutes $(FRAMEWORKS_MINUTES) -o $(FRAMEWORKS)/optimizers.csv

# The program exits 77, and make fails, where there is no GPU: that is not a pass.
ifeq ($(GPU),1)
check-gpu: $(BUILD)/tests/check_gpu $(BUILD)/tersor $(BUILD)/libtersor.so
	$<
	python3 tests/gpu/pack.py $(BUILD)/tersor
	python3 tests/gpu/replay.py $(BUILD)/tersor
	$(PYTHON) -W ignore tests/gpu/saving.py $(BUILD)/tersor
else
check-gpu:
	@echo 'make check-gpu: built without CUDA' >&2; exit 77
endif

# What tests/gpu/run.sh needs, for a machine with a GPU and few libraries.
gpu-kit: $(BUILD)/tests/check_gpu $(BUILD)/tersor $(BUILD)/libtersor.so
	$(call say,COPY,$(BUILD)/$@)
	$(Q)rm -rf $(BUILD)/$@ && mkdir -p $(BUILD)/$@/lib && cp $^ $(BUILD)/$@ && strip $(BUILD)/$@/tersor $(BUILD)/$@/libtersor.so \
		&& ldd $(BUILD)/tersor | awk '/libcjson|libdeflate|libz\./ { print $$3 }' | xargs -I{} cp {} $(BUILD)/$@/lib

# The kernels as C++ on the CPU, on fewer values: what is wrong with them, but for what only a GPU does.
# EMULATE_SAN=address,undefined: they, src/pack, src/replay and the tests under sanitizers.
export EMULATE_SAN ?=
EMULATED := $(BUILD)/emulated$(EMULATE_SAN:%=-san)
check-emulated:
	@$(MAKE) --no-print-directory BUILD=$(EMULATED) GPU=1 NVCC=tests/gpu/emulate/nvcc \
		NVCCFLAGS=-O$(if $(EMULATE_SAN),1,2) $(EMULATED)/tests/check_gpu $(EMULATED)/tersor $(EMULATED)/libtersor.so
	@$(MAKE) --no-print-directory -j$(NPROC) $(addprefix emulated-,replay pack kernels saving)
.PHONY: emulated-kernels emulated-pack emulated-replay emulated-saving
emulated-kernels:
	$(EMULATED)/tests/check_gpu --emulated
emulated-pack emulated-replay: emulated-%:
	python3 tests/gpu/$*.py $(EMULATED)/tersor --emulated
emulated-saving:
	$(PYTHON) -W ignore tests/gpu/saving.py $(EMULATED)/tersor --emulated
ifneq ($(EMULATE_SAN),)
$(GPU_TEST_OBJ) $(filter $(BUILD)/obj/src/pack/% $(BUILD)/obj/src/replay/%,$(LIB_OBJ)): override CFLAGS += -fsanitize=$(EMULATE_SAN)
override LDFLAGS += -fsanitize=$(EMULATE_SAN)
endif

bench: $(BUILD)/tersor
	$(BUILD)/tersor bench

# Other programs beside tersor on one checkpoint (docs/codecs.md): COMPARE_CHECKPOINT, or a small GPT that is
# trained for it; COMPARE_PYTHON: a Python that has the libraries, instead of an environment of its own.  Then forms
# of moments on three states.
COMPARE_CHECKPOINT ?= $(BUILD)/compare/gpt.safetensors
COMPARE_PYTHON ?= $(BUILD)/compare/venv/bin/python
$(BUILD)/compare/venv/bin/python: tests/compare/requirements.txt
	$(Q)$(PYTHON) -m venv $(BUILD)/compare/venv
	$(Q)$@ -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@
$(BUILD)/compare/gpt.safetensors: tests/compare/small_gpt.py | $(COMPARE_PYTHON)
	@mkdir -p $(@D)
	$(COMPARE_PYTHON) $< $@
compare: $(BUILD)/tersor $(COMPARE_PYTHON) $(COMPARE_CHECKPOINT)
	$(COMPARE_PYTHON) tests/compare/head_to_head.py $< $(COMPARE_CHECKPOINT) --python $(COMPARE_PYTHON)
	$(COMPARE_PYTHON) -W ignore tests/compare/forms.py $< --gpu docs/internals/speed.csv \
		'tiny-gpt=tests/data/tiny-gpt/expected-adamw-fp32.safetensors' 'real GPT=tests/data/real-gpt-worst.safetensors' \
		'checkpoint=$(COMPARE_CHECKPOINT)'

# The sources of a commit as one file, with the same bytes wherever it is made.
DIST := $(BUILD)/tersor-$(VERSION).tar.gz
dist:
	@mkdir -p $(BUILD)
	$(Q)git archive --prefix=tersor-$(VERSION)/ -o $(DIST:.gz=) HEAD
	$(Q)gzip -n9f $(DIST:.gz=)
	@sha256sum $(DIST)

# All tests but those of builds and of the shared library, which other programs load; SAN_TESTS: some of them.
SAN_TESTS ?= $(filter-out $(patsubst %,tests/test_%.py,bounds build companion library memory_formats packages static), \
	$(sort $(wildcard tests/test_*.py)))
SAN_asan := address
SAN_ubsan := undefined
SAN_sanitized := address,undefined
asan ubsan sanitized:
	@$(MAKE) --no-print-directory BUILD=$(BUILD)/$@ GPU=0 CC=clang CFLAGS='-O1 -g' VENV=$(VENV) \
		SAN=$(SAN_$@) \
		check-unit $(BUILD)/$@/tersor $(BUILD)/$@/tests/libfaults.so $(VENV)/ready
	$(Q)TERSOR=$(abspath $(BUILD)/$@/tersor) TERSOR_FAULTS=$(abspath $(BUILD)/$@/tests/libfaults.so) \
		$(VENV)/bin/python -m pytest -q -p no:cacheprovider -n $(NPROC) $(SAN_TESTS) $(PYTEST_ARGS)

# Counters of processes that a test kills are lost; those of threads are not.  Tests that watch which files a
# process opens, or limit their size, fail: counters are files.
coverage:
	@find $(BUILD)/$@ -name '*.gcda' -delete 2>/dev/null || true
	-@$(MAKE) --no-print-directory BUILD=$(BUILD)/$@ VENV=$(VENV) GPU=0 LDFLAGS=--coverage \
		CFLAGS='-O1 -g --coverage -fprofile-update=atomic' check-build check-unit check-cli
	@$(PYTHON) tests/coverage.py $(BUILD)/$@ $(COVERAGE_ARGS)

# Do tests fail when the code is wrong?  Faults for each promise of promises.txt, and 100 chosen ones.
mutants: setup-check $(VENV)/ready
	@VENV=$(abspath $(VENV)) $(PYTHON) tests/mutants/run.py rows
	@VENV=$(abspath $(VENV)) $(PYTHON) tests/mutants/run.py chosen

lint: all
	@.ci/lint '$(C_FILES)' $(BUILD)

format:
	clang-format -i $(C_FILES)

# --- Installation ---------------------------------------------------------------------------

INSTALLED = $(BINDIR)/tersor $(addprefix $(LIBDIR)/,libtersor.a libtersor.so $(SO_NAME) pkgconfig/tersor.pc) \
	$(patsubst include/%,$(INCLUDEDIR)/%,include/tersor.h $(wildcard include/tersor/*.h)) \
	$(patsubst man/%,$(MANDIR)/man1/%,$(wildcard man/*.1)) \
	$(addprefix $(DATADIR)/,$(foreach shell,bash zsh fish,$(COMPLETION_$(shell))))

# Where shells look for completions below share; $(call completions,PROGRAM,SHARE) puts them there.
COMPLETION_bash := bash-completion/completions/tersor
COMPLETION_zsh := zsh/site-functions/_tersor
COMPLETION_fish := fish/vendor_completions.d/tersor.fish
completions = for path in bash:$(COMPLETION_bash) zsh:$(COMPLETION_zsh) fish:$(COMPLETION_fish); do \
	install -d $$(dirname $(2)/$${path\#*:}) && $(1) completion $${path%%:*} > $(2)/$${path\#*:} || exit 1; done

install: all
	install -d $(sort $(dir $(addprefix $(DESTDIR),$(INSTALLED))))
	install -m 755 $(BUILD)/tersor $(DESTDIR)$(BINDIR)/
	install -m 644 $(BUILD)/libtersor.a $(DESTDIR)$(LIBDIR)/
	install -m 755 $(BUILD)/libtersor.so $(DESTDIR)$(LIBDIR)/$(SO_NAME)
	ln -sf $(SO_NAME) $(DESTDIR)$(LIBDIR)/libtersor.so
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' -e 's|@INCLUDEDIR@|$(INCLUDEDIR)|' \
		-e 's|@VERSION@|$(VERSION)|' -e 's|@LIBS@|-pthread $(LDLIBS)|' src/tersor.pc.in \
		> $(DESTDIR)$(LIBDIR)/pkgconfig/tersor.pc
	install -m 644 include/tersor.h $(DESTDIR)$(INCLUDEDIR)/
	install -m 644 include/tersor/*.h $(DESTDIR)$(INCLUDEDIR)/tersor/
	install -m 644 man/*.1 $(DESTDIR)$(MANDIR)/man1/
	$(call completions,$(BUILD)/tersor,$(DESTDIR)$(DATADIR))
ifeq ($(DESTDIR),)
	@PATH="$$PATH:/usr/sbin:/sbin"; \
	if [ "$$(id -u)" = 0 ] && ldconfig -NXv 2>/dev/null | grep -q '^$(LIBDIR):'; then ldconfig; \
	elif ! ldconfig -p 2>/dev/null | grep -q '> $(LIBDIR)/$(SO_NAME)$$'; then printf '%s\n' \
		'The loader and pkg-config do not find the library in $(LIBDIR) by themselves.  To build with it and run:' \
		'  export LD_LIBRARY_PATH=$(LIBDIR) PKG_CONFIG_PATH=$(LIBDIR)/pkgconfig'; fi
endif

uninstall:
	rm -f $(addprefix $(DESTDIR),$(INSTALLED))
	-rmdir $(DESTDIR)$(INCLUDEDIR)/tersor

clean:
	rm -rf $(BUILD)

help:
	@printf '%s\n' \
	'make demo        install what is needed (says what first), build, show what tersor does' \
	'make check       install what is needed, build, run the tests (under five minutes)' \
	'make check-long  the same tests, the exhaustive rest, and check-frameworks' \
	'make check-frameworks  fresh checkpoints of frameworks and optimizers (gigabytes from PyPI)' \
	'make check-frozen  every command still writes what tests/frozen recorded' \
	'make check-gpu   GPU kernels, packing and replays against the CPU (needs a GPU)' \
	'make check-emulated  the same with kernels as C++ on the CPU (EMULATE_SAN=address,undefined)' \
	'make gpu-kit     what tests/gpu/run.sh takes to a machine with a GPU' \
	'make all         $(BUILD)/tersor, $(BUILD)/libtersor.a, $(BUILD)/libtersor.so' \
	'make mpi         $(BUILD)/tersor-mpi by mpicc; MPICC=mpicc.mpich: tersor-mpi.mpich' \
	'make dist        $(BUILD)/tersor-$(VERSION).tar.gz: the sources of the last commit' \
	'make static      $(STATIC)/tersor: one binary for x86-64 Linux from glibc $(STATIC_GLIBC)' \
	'make release     all packages and their SHA-256 in $(RELEASE)' \
	'make wheel       a Python wheel with the program, its manual and the Python package' \
	'make sbom        what is linked into the static binary, as SPDX 2.3: versions, licences, hashes' \
	'make deb         Debian packages: tersor, libtersor1, libtersor-dev' \
	'make bench       speed of the codecs beside plain copying' \
	'make compare     other programs and their forms beside tersor (gigabytes from PyPI)' \
	'make lint        style, layering, and that help and man pages agree' \
	'make fuzz        every parser under libFuzzer, FUZZ_SECONDS=600 each (FUZZ=name: one)' \
	'make fuzz-kit    the same for a machine without a compiler: $(BUILD)/fuzz-kit/run.sh SECONDS JOBS' \
	'make msan        the fuzz corpora under MemorySanitizer (clang)' \
	'make asan ubsan  the tests under AddressSanitizer, UndefinedBehaviorSanitizer' \
	'make sanitized   the same under both at once' \
	'make mutants     tests fail when the code is wrong: one fault after the other (an hour)' \
	'make coverage    lines of src and include that the tests run (COVERAGE_ARGS=--missed)' \
	'make install     into PREFIX (now $(PREFIX)), below DESTDIR; make uninstall removes it' \
	'make clean       remove $(BUILD)' \
	'Variables: GPU=0|1 (now $(GPU)), CC, CFLAGS, WERROR=1, V=1, BUILD, DESTDIR, PREFIX and, below it,' \
	'BINDIR, LIBDIR, INCLUDEDIR, DATADIR, MANDIR'
