# SPDX-License-Identifier: Apache-2.0
#
# make release: what a release consists of, in build/release, with the SHA-256 of each file.

RELEASE := $(BUILD)/release
RELEASE_NAME := tersor-$(VERSION)-linux-x86_64

.PHONY: release
release: static
	@$(SUBMAKE) dist sbom wheel deb
	$(Q)rm -rf $(RELEASE) && mkdir -p $(RELEASE)/$(RELEASE_NAME)/man $(RELEASE)/$(RELEASE_NAME)/licenses
	$(Q)cp $(STATIC)/tersor LICENSE NEWS.md $(RELEASE)/$(RELEASE_NAME)
	$(Q)cp man/*.1 $(RELEASE)/$(RELEASE_NAME)/man && cp packaging/licenses/*.txt $(RELEASE)/$(RELEASE_NAME)/licenses
	$(Q)$(call completions,$(STATIC)/tersor,$(RELEASE)/$(RELEASE_NAME)/share)
	$(Q)tar -c --sort=name --owner=0 --group=0 --numeric-owner --mode=u+rwX,go+rX,go-w --mtime=@$(EPOCH) \
		-f $(RELEASE)/$(RELEASE_NAME).tar -C $(RELEASE) $(RELEASE_NAME)
	$(Q)gzip -n9 $(RELEASE)/$(RELEASE_NAME).tar
	$(Q)rm -r $(RELEASE)/$(RELEASE_NAME)
	$(Q)cp $(DIST) $(SBOM) $(BUILD)/wheel/*.whl $(DEB)/*.deb $(RELEASE)
	$(Q)cd $(RELEASE) && sha256sum -- * > SHA256SUMS && cat SHA256SUMS
