#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make the Python wheel: the binary as a script, the library, the modules, manual pages, completions, licences.

    packaging/wheel/wheel.py BINARY LIBRARY --version V --epoch SECONDS --out DIRECTORY [--sbom FILE]

Prints the path of the wheel.  The same files and seconds since 1970 give the same bytes.  Its name says where
it runs: manylinux with the GNU libc that both need, or linux alone if one loads other libraries, too.
"""
import argparse
import base64
import hashlib
import json
import pathlib
import subprocess
import sys
import time
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent))

import elf      # noqa: E402: a file of packaging

COMPLETIONS = {"bash": "bash-completion/completions/tersor", "zsh": "zsh/site-functions/_tersor",
               "fish": "fish/vendor_completions.d/tersor.fish"}     # below share, as make install has them
LIBRARY = "libtersor.so.1"
OLDEST_GLIBC = 2, 17    # of the names that installers know
SUMMARY = "Pack, compare and replay the training state of neural networks on disk"


def platform_tag(*binaries):
    machine = elf.machine(binaries[0])
    if any(map(elf.beside_libc, binaries)):
        return f"linux_{machine}"
    major, minor = max(OLDEST_GLIBC, *map(elf.glibc, binaries))
    return f"manylinux_{major}_{minor}_{machine}"


def expression(sbom):
    """The licences of all that is linked in, as one expression."""
    if not sbom:
        return "Apache-2.0"
    found = {package["licenseDeclared"] for package in json.loads(sbom.read_text())["packages"]}
    return " AND ".join(sorted(found))


def metadata(version, sbom, licenses):
    lines = ["Metadata-Version: 2.4", "Name: tersor", f"Version: {version}", f"Summary: {SUMMARY}",
             f"License-Expression: {expression(sbom)}", *(f"License-File: {name}" for name in licenses),
             "Requires-Python: >=3.8", "Provides-Extra: torch", 'Requires-Dist: numpy; extra == "torch"',
             'Requires-Dist: torch; extra == "torch"',
             "Classifier: Environment :: Console", "Classifier: Operating System :: POSIX :: Linux",
             "Classifier: Programming Language :: C", "Classifier: Programming Language :: Python :: 3",
             "Classifier: Topic :: Scientific/Engineering :: Artificial Intelligence",
             "Keywords: checkpoint,compression,optimizer,pytorch,safetensors",
             "Description-Content-Type: text/markdown", "", (HERE / "description.md").read_text()]
    return "\n".join(lines).encode()


def contents(args, tag):
    """{path in the wheel: bytes}, without RECORD."""
    data, info = f"tersor-{args.version}.data", f"tersor-{args.version}.dist-info"
    files = {f"tersor/{path.name}": path.read_bytes() for path in sorted((HERE / "tersor").glob("*.*"))}
    files[f"tersor/{LIBRARY}"] = args.library.read_bytes()
    for page in sorted((ROOT / "man").glob("*.1")):
        files[f"{data}/data/share/man/man1/{page.name}"] = page.read_bytes()
    for shell, path in COMPLETIONS.items():
        files[f"{data}/data/share/{path}"] = subprocess.run([args.binary, "completion", shell], check=True,
                                                            stdout=subprocess.PIPE).stdout
    files[f"{data}/scripts/tersor"] = args.binary.read_bytes()
    texts = {"LICENSE": ROOT / "LICENSE"}
    texts.update((f"linked/{path.name}", path) for path in sorted((HERE.parent / "licenses").glob("*.txt")))
    for name, path in texts.items():
        files[f"{info}/licenses/{name}"] = path.read_bytes()
    if args.sbom:
        files[f"{info}/sboms/tersor.spdx.json"] = args.sbom.read_bytes()
    files[f"{info}/METADATA"] = metadata(args.version, args.sbom, texts)
    files[f"{info}/WHEEL"] = ("Wheel-Version: 1.0\nGenerator: tersor\nRoot-Is-Purelib: false\n"
                              f"Tag: py3-none-{tag}\n").encode()
    return files


def record(files, path):
    lines = []
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(content)}\n")
    return "".join([*lines, f"{path},,\n"]).encode()


def write(path, files, epoch):
    date = max(time.gmtime(epoch)[:6], (1980, 1, 1, 0, 0, 0))   # the first date that zip knows
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, date)
            entry.compress_type, entry.create_system = zipfile.ZIP_DEFLATED, 3
            entry.external_attr = (0o100755 if "/scripts/" in name else 0o100644) << 16
            archive.writestr(entry, content, compresslevel=9)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("library", type=pathlib.Path)
    parser.add_argument("--version", required=True)
    parser.add_argument("--epoch", type=int, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--sbom", type=pathlib.Path)
    args = parser.parse_args()
    tag = platform_tag(args.binary, args.library)
    files = contents(args, tag)
    path = f"tersor-{args.version}.dist-info/RECORD"
    files[path] = record(files, path)
    args.out.mkdir(parents=True, exist_ok=True)
    wheel = args.out / f"tersor-{args.version}-py3-none-{tag}.whl"
    write(wheel, files, args.epoch)
    print(wheel)


if __name__ == "__main__":
    main()
