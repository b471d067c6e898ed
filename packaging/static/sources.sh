#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# packaging/static/sources.sh OUT: the sources of the libraries in the static binary, as Debian patches them.
#
# Downloads Debian's source packages, unpacks each into OUT/NAME and writes OUT/versions: a line per library
# with its name, version, home page, the SHA-256 of its .dsc (which has those of its archives) and licence,
# with tabs between them.  STATIC_SOURCES=DIR takes the packages, *.dsc and what they name, from DIR instead.
# The lists of packages are its own: what apt-get knows otherwise does not change.
set -eu

mkdir -p "$1"
out=$(cd "$1" && pwd)
here=$(dirname "$0")
packages='cjson libdeflate xxhash zlib'

fail() {
	echo "packaging/static/sources.sh: $*" >&2
	exit 1
}

# Debian's entry of the machine's own configuration, for sources.
list_sources() {
	if [ -e /etc/apt/sources.list.d/debian.sources ]; then
		sed 's/^Types:.*/Types: deb-src/' /etc/apt/sources.list.d/debian.sources > "$lists/sources.list.d/debian.sources"
	else
		sed -n 's/^deb /deb-src /p' /etc/apt/sources.list > "$lists/sources.list.d/debian.list"
	fi
}

download() {
	lists=$out/lists
	mkdir -p "$lists/sources.list.d" "$lists/state/partial" "$lists/cache/archives/partial"
	list_sources
	options="-qq -oDir::Etc::SourceList=/dev/null -oDir::Etc::SourceParts=$lists/sources.list.d
		-oDir::State::Lists=$lists/state -oDir::Cache=$lists/cache -oAPT::Sandbox::User="
	# shellcheck disable=SC2086 # both are words
	{
		apt-get $options update
		cd "$archives"
		apt-get $options source --download-only $packages
	} > "$out/download.log" 2>&1 || { tail -n 20 "$out/download.log" >&2; fail 'cannot download the sources'; }
}

row() {
	printf '%s\t%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$4" "$5" >> "$out/versions.new"
}

# unpack PACKAGE NAME HOME LICENCE
unpack() {
	set -- "$@" "$(ls "$archives/$1"_*.dsc 2>/dev/null)"
	[ -f "$5" ] || fail "$archives: expected one .dsc of $1"
	rm -rf "${out:?}/$1"
	dpkg-source -x "$5" "$out/$1" > "$out/unpack.log" 2>&1 ||
		{ tail -n 20 "$out/unpack.log" >&2; fail "cannot unpack $5"; }
	row "$2" "$(sed -n 's/^Version: //p' "$5" | head -n 1)" "$3" "$(sha256sum "$5" | cut -d' ' -f1)" "$4"
}

archives=${STATIC_SOURCES:-$out/archives}
command -v dpkg-source >/dev/null || fail 'needs dpkg-source: run .ci/setup release'
if [ -z "${STATIC_SOURCES:-}" ]; then
	rm -rf "$archives"
	mkdir -p "$archives"
	(download)
fi
: > "$out/versions.new"
unpack cjson cJSON https://github.com/DaveGamble/cJSON MIT
unpack libdeflate libdeflate https://github.com/ebiggers/libdeflate MIT
unpack xxhash xxHash https://xxhash.com BSD-2-Clause
unpack zlib zlib https://zlib.net Zlib
# Of the compiler's own library, parts of compiler-rt and the start of a program are linked in.
row zig "$(sed 's/.*==//' "$here/requirements.txt")" https://ziglang.org "$(cat "$out/../compiler.sha256")" MIT
mv "$out/versions.new" "$out/versions"
