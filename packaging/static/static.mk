# SPDX-License-Identifier: Apache-2.0
#
# make static: a binary and a shared library for every x86-64 Linux with GNU libc 2.17 (2012) or later, in which
# all libraries but that one are linked.  With GPU=1 they also have the kernels; the CUDA runtime in them opens the driver if there
# is one (docs/install.md).

STATIC := $(BUILD)/static
STATIC_GLIBC := 2.17
STATIC_FLAGS := -target x86_64-linux-gnu.$(STATIC_GLIBC)
STATIC_SOURCES ?=
STATIC_DEPS := $(STATIC)/deps
STATIC_CC := $(abspath $(STATIC))/cc
# clang calls the levels by other names where it is told the processor and not the architecture.
STATIC_ISA := ISA_FLAGS_avx2=-mcpu=x86_64_v3 ISA_FLAGS_avx512=-mcpu=x86_64_v4

.PHONY: static
static: $(STATIC_DEPS)/ready
	@env CPPFLAGS='-I$(abspath $(STATIC_DEPS))/include' LDFLAGS='-L$(abspath $(STATIC_DEPS))/lib' \
		$(SUBMAKE) BUILD=$(STATIC) GPU=$(GPU) CC='$(STATIC_CC)' CFLAGS='-O2' $(STATIC_ISA) \
		$(STATIC)/tersor $(STATIC)/libtersor.so
	$(Q)strip $(STATIC)/tersor $(STATIC)/libtersor.so
	@for file in tersor libtersor.so; do \
		PYTHON='$(PYTHON)' packaging/static/check.sh $(STATIC)/$$file $(STATIC_GLIBC) || exit 1; done
	@sha256sum $(STATIC)/tersor $(STATIC)/libtersor.so

$(STATIC)/tersor $(STATIC)/libtersor.so: static ;

$(STATIC_CC): packaging/static/requirements.txt
	@.ci/setup release
	$(call say,VENV,$(STATIC)/compiler)
	$(Q)$(PYTHON) -m venv $(STATIC)/compiler
	$(Q)$(STATIC)/compiler/bin/pip install --quiet --disable-pip-version-check -r $<
	@sha256sum $(STATIC)/compiler/lib/python3*/site-packages/ziglang/zig | cut -d' ' -f1 > $(STATIC)/compiler.sha256
	@printf '%s\n' '#!/bin/sh' 'exec $(abspath $(STATIC))/compiler/bin/python -m ziglang cc $(STATIC_FLAGS) "$$@"' > $@
	@chmod +x $@

$(STATIC)/sources/versions: packaging/static/sources.sh $(STATIC_CC)
	$(call say,FETCH,$(@D))
	$(Q)STATIC_SOURCES='$(STATIC_SOURCES)' packaging/static/sources.sh $(@D)

# The libraries need no more than their files compiled: none of their own build systems.
static_library = mkdir -p $(STATIC_DEPS)/obj/$(1) && cd $(STATIC_DEPS)/obj/$(1) && \
	$(STATIC_CC) -O2 -fPIC -DNDEBUG $(2) -c $(addprefix $(abspath $(STATIC))/sources/,$(3)) && \
	rm -f ../../lib/lib$(1).a && ar rcs ../../lib/lib$(1).a *.o
$(STATIC_DEPS)/ready: $(STATIC)/sources/versions packaging/static/static.mk
	$(call say,LIBS,$(STATIC_DEPS))
	$(Q)rm -rf $(STATIC_DEPS) && mkdir -p $(STATIC_DEPS)/include/cjson $(STATIC_DEPS)/lib
	$(Q)cd $(STATIC)/sources && cp -p cjson/cJSON.h $(abspath $(STATIC_DEPS))/include/cjson && \
		cp -p zlib/zlib.h zlib/zconf.h libdeflate/libdeflate.h xxhash/xxhash.h $(abspath $(STATIC_DEPS))/include
	$(Q)$(call static_library,cjson,,cjson/cJSON.c)
	$(Q)$(call static_library,z,-DHAVE_UNISTD_H -D_LARGEFILE64_SOURCE=1,zlib/[a-fi-z]*.c)
	$(Q)$(call static_library,deflate,-I$(abspath $(STATIC))/sources/libdeflate,libdeflate/lib/crc32.c \
		libdeflate/lib/utils.c libdeflate/lib/x86/cpu_features.c)
	@touch $@
