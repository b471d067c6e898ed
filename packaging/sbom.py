#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What is linked into a binary of tersor, as SPDX 2.3 in JSON on the standard output.

    packaging/sbom.py BINARY --version V --epoch SECONDS --sources FILE [--cuda V]

FILE has a line per library: name, version, URL and SHA-256 of its sources, and its licence as SPDX names it,
with tabs between them.  --cuda is the version of the toolkit whose runtime is linked in.
"""
import argparse
import datetime
import hashlib
import json
import pathlib
import re
import sys

import elf

LICENSES = pathlib.Path(__file__).resolve().parent / "licenses"
TOOLKIT_LICENSE = "LicenseRef-NVIDIA-CUDA-EULA"
TOOLKIT_TERMS = "https://docs.nvidia.com/cuda/eula/"
DRIVER = b"libcuda.so.1"    # what the CUDA runtime opens


def read_sources(path):
    """[(name, version, url, sha256, licence)], each with a text of its licence in packaging/licenses."""
    rows = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        row = line.split("\t")
        if len(row) != 5 or not all(row) or not re.fullmatch("[0-9a-f]{64}", row[3]):
            sys.exit(f"{path}:{number}: expected name, version, URL, SHA-256 and licence, "
                     "with tabs between them")
        if not (LICENSES / f"{row[0]}.txt").is_file():
            sys.exit(f"{path}:{number}: packaging/licenses has no {row[0]}.txt")
        rows.append(row)
    return rows


def package(name, version, url, licence, checksum=None, **more):
    found = {"SPDXID": "SPDXRef-" + re.sub(r"[^A-Za-z0-9.]+", "-", name), "name": name,
             "versionInfo": version, "downloadLocation": url, "filesAnalyzed": False,
             "licenseConcluded": licence, "licenseDeclared": licence, "copyrightText": "NOASSERTION", **more}
    if checksum:
        found["checksums"] = [{"algorithm": "SHA256", "checksumValue": checksum}]
    return found


def document(binary, args):
    digest = hashlib.sha256(binary).hexdigest()
    tersor = package("tersor", args.version, "NOASSERTION", "Apache-2.0", digest, packageFileName="tersor",
                     primaryPackagePurpose="APPLICATION")
    linked = [package(name, version, url, licence, sha256, primaryPackagePurpose="LIBRARY",
                      sourceInfo="The checksum is that of the sources that were compiled.")
              for name, version, url, sha256, licence in read_sources(args.sources)]
    if args.cuda:
        linked.append(package("CUDA Runtime", args.cuda, "NOASSERTION", TOOLKIT_LICENSE,
                              primaryPackagePurpose="LIBRARY"))
    created = datetime.datetime.fromtimestamp(args.epoch, datetime.timezone.utc)
    found = {
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"tersor-{args.version}",
        "documentNamespace": f"https://spdx.org/spdxdocs/tersor-{args.version}-{digest}",
        "creationInfo": {"created": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
                         "creators": ["Organization: tersor", "Tool: packaging/sbom.py"]},
        "packages": [tersor, *linked],
        "relationships": [
            {"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES",
             "relatedSpdxElement": tersor["SPDXID"]},
            *({"spdxElementId": tersor["SPDXID"], "relationshipType": "STATIC_LINK",
               "relatedSpdxElement": each["SPDXID"]} for each in linked)]}
    if args.cuda:
        found["hasExtractedLicensingInfos"] = [{
            "licenseId": TOOLKIT_LICENSE, "name": "NVIDIA CUDA Toolkit End User License Agreement",
            "extractedText": f"The runtime may be distributed as Attachment A of {TOOLKIT_TERMS} says.",
            "seeAlsos": [TOOLKIT_TERMS]}]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("--version", required=True)
    parser.add_argument("--epoch", type=int, required=True)
    parser.add_argument("--sources", type=pathlib.Path, required=True)
    parser.add_argument("--cuda", default="")
    args = parser.parse_args()
    loaded = elf.beside_libc(args.binary)
    if loaded:
        sys.exit(f"{args.binary}: loads {', '.join(loaded)}: a list of what is linked in would not have it")
    binary = args.binary.read_bytes()
    if (DRIVER in binary) != bool(args.cuda):
        sys.exit(f"{args.binary}: built {'without' if args.cuda else 'with'} CUDA, "
                 f"but the version of its toolkit was {'' if args.cuda else 'not '}given")
    json.dump(document(binary, args), sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
