#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# packaging/static/check.sh BINARY GLIBC: fails unless BINARY needs no library but GNU libc of version GLIBC,
# or an older one.
set -eu

cd "$(dirname "$0")/.."
case $1 in
/*) binary=$1 ;;
*) binary=$OLDPWD/$1 ;;
esac
exec "${PYTHON:-/usr/bin/python3}" - "$binary" "$2" << 'PYTHON'
import sys
import elf

binary, (major, minor) = sys.argv[1], map(int, sys.argv[2].split("."))
loaded, found = elf.beside_libc(binary), elf.glibc(binary)
if loaded:
    sys.exit(f"{binary}: loads {', '.join(loaded)}; expected no library but GNU libc")
if found > (major, minor):
    sys.exit(f"{binary}: needs GNU libc {found[0]}.{found[1]}; expected {major}.{minor} or older")
PYTHON
