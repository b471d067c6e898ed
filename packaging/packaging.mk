# SPDX-License-Identifier: Apache-2.0
#
# Packages that install tersor without a compiler: make wheel.  The same commit gives the same bytes.

# The binary in the wheel.
TERSOR_BINARY ?= $(BUILD)/tersor

# Seconds since 1970 that packages are dated with: those of the commit, or of the file in an archive of it.
EPOCH = $(or $(SOURCE_DATE_EPOCH),$(shell git log -1 --format=%ct 2>/dev/null || \
	stat -c %Y include/tersor/version.h))

.PHONY: wheel
wheel: $(TERSOR_BINARY)
	$(Q)rm -rf $(BUILD)/wheel
	$(Q)wheel=$$($(PYTHON) packaging/wheel/wheel.py $< --version $(VERSION) --epoch $(EPOCH) \
		--out $(BUILD)/wheel) && sha256sum $$wheel
