#!/usr/bin/env python3
"""The text for resume_study.py: documentation that Debian's packages ship, as one file.

    documentation_text.py OUT.txt.xz [PACKAGE...]

Each package is downloaded by apt-get and opened by dpkg-deb, nothing is installed.  Text, reStructuredText
and Markdown are taken as they are, POD and manual pages too, HTML without its tags.  A paragraph that was seen
before is left out: pages repeat their navigation.  Prints a line for each package with its version.
"""
import gzip
import html
import lzma
import pathlib
import re
import subprocess
import sys
import tempfile

PACKAGES = ["linux-doc-6.1", "python3.11-doc", "git-doc", "postgresql-doc-15", "perl-doc", "nodejs-doc",
            "rust-doc", "python-django-doc", "python-scipy-doc", "debian-policy", "developers-reference",
            "manpages", "manpages-dev", "sqlite3-doc", "bash-doc", "r-doc-html"]
PLAIN = {".txt", ".rst", ".md", ".pod", ".adoc"}
MARKUP = re.compile(r"<(script|style|nav|head)\b.*?</\1>|<[^>]*>", re.S | re.I)
LIMIT = 13_000_000  # characters of one package


def text_of(path):
    name, data = path.name, path.read_bytes()
    if name.endswith(".gz"):
        name, data = name[:-3], gzip.decompress(data)
    suffix = pathlib.PurePath(name).suffix
    text = data.decode("utf-8", "ignore")
    if suffix in (".html", ".htm"):
        return re.sub(r"[ \t]+", " ", html.unescape(MARKUP.sub("", text)))
    manual = re.fullmatch(r"\.[1-8]\w*", suffix) and "/man/" in str(path)
    return text if suffix in PLAIN or manual else ""


def paragraphs(root, seen):
    for path in sorted(root.rglob("*")):
        if not path.is_file() or path.is_symlink() or path.name.startswith("changelog"):
            continue
        for paragraph in re.split(r"\n\s*\n", text_of(path)):
            paragraph = paragraph.strip("\n")
            if len(paragraph) > 40 and hash(paragraph) not in seen:
                seen.add(hash(paragraph))
                yield paragraph + "\n\n"


def main():
    seen, total = set(), 0
    with lzma.open(sys.argv[1], "wt", encoding="utf-8") as out, tempfile.TemporaryDirectory() as scratch:
        for package in sys.argv[2:] or PACKAGES:
            folder = pathlib.Path(scratch, package)
            folder.mkdir()
            subprocess.run(["apt-get", "download", "-qq", package], cwd=folder, check=True, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
            archive = next(folder.glob("*.deb"))
            subprocess.run(["dpkg-deb", "-x", archive, folder / "root"], check=True)
            taken = 0
            for text in paragraphs(folder / "root", seen):
                if taken > LIMIT:
                    break
                out.write(text)
                taken += len(text)
            total += taken
            print(f"{archive.stem} {taken}", flush=True)
    print(f"{total} characters")


if __name__ == "__main__":
    main()
