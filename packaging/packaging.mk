# SPDX-License-Identifier: Apache-2.0
#
# Packages that install tersor without a compiler: make wheel, make deb.  The same commit gives the
# same bytes.

# The binary and the shared library in the wheel, and the list of the libraries that are linked into both, if
# they are (packaging/sbom.py).
TERSOR_BINARY ?= $(BUILD)/$(if $(wildcard packaging/static/static.mk),static/)tersor
TERSOR_LIBRARY ?= $(dir $(TERSOR_BINARY))libtersor.so
TERSOR_SOURCES ?= $(if $(filter $(BUILD)/static/tersor,$(TERSOR_BINARY)),$(BUILD)/static/sources/versions)

# Seconds since 1970 that packages are dated with: those of the commit, or of the file in an archive of it.
EPOCH = $(or $(SOURCE_DATE_EPOCH),$(shell if [ -e .git ]; then git log -1 --format=%ct; else \
	stat -c %Y include/tersor/version.h; fi))

.PHONY: sbom wheel deb
SBOM := $(BUILD)/tersor-$(VERSION).spdx.json
CUDA_VERSION = $(if $(filter 1,$(GPU)),$(shell $(NVCC) --version | sed -n 's/.*release [^,]*, V//p'))
sbom: $(TERSOR_BINARY)
	@mkdir -p $(BUILD)
	$(Q)packaging/sbom.py $< --version $(VERSION) --epoch $(EPOCH) --sources $(TERSOR_SOURCES) \
		$(addprefix --cuda ,$(CUDA_VERSION)) > $(SBOM)
	@sha256sum $(SBOM)

wheel: $(TERSOR_BINARY) $(TERSOR_LIBRARY) $(if $(TERSOR_SOURCES),sbom)
	$(Q)rm -rf $(BUILD)/wheel
	$(Q)wheel=$$($(PYTHON) packaging/wheel/wheel.py $< $(TERSOR_LIBRARY) --version $(VERSION) --epoch $(EPOCH) \
		--out $(BUILD)/wheel $(if $(TERSOR_SOURCES),--sbom $(SBOM))) && sha256sum $$wheel

# Debian's tools build in a copy of the sources, with nothing of this make in their environment.
DEB := $(BUILD)/deb
DEB_TREE := $(DEB)/tersor-$(VERSION)
deb:
	@.ci/setup release
	$(Q)rm -rf $(DEB) && mkdir -p $(DEB_TREE)
	$(Q){ if [ -e .git ]; then git ls-files -z; else \
		find . -path './$(BUILD)' -prune -o -type f -print0; fi; } | \
		tar -c --null -T - | tar -x -C $(DEB_TREE)
	$(Q)cp -r packaging/deb/debian $(DEB_TREE)
	$(Q)sed -e 's/@VERSION@/$(VERSION)/' -e "s/@DATE@/$$(LC_ALL=C date -u -R -d @$(EPOCH))/" \
		packaging/deb/changelog.in > $(DEB_TREE)/debian/changelog
	$(Q)cd $(DEB_TREE) && env -i PATH="$$PATH" HOME="$$HOME" LC_ALL=C \
		DEB_BUILD_OPTIONS='noautodbgsym parallel=$(NPROC)' dpkg-buildpackage -b -us -uc > ../build.log 2>&1 || \
		{ tail -n 30 ../build.log >&2; exit 1; }
	@sha256sum $(DEB)/*.deb
