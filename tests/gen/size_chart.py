#!/usr/bin/env python3
"""docs/size.svg: bytes per parameter of ways to store a checkpoint, from the table of docs/codecs.md, "Other programs".

    size_chart.py docs/codecs.md > docs/size.svg
"""
import pathlib
import re
import sys

BARS = [("cp", "FP32 checkpoint"), ("zstd -19", "zstd -19"), ("ZipNN", "ZipNN"),
        ("tersor, exact, `--entropy`", "tersor, exact, --entropy"), ("torch.save, all BF16", "all of it in BF16"),
        ("tersor", "tersor pack")]
LEFT, WIDTH, HEIGHT, COLOURS = 186, 400, 26, {"lossless": "#9a9a9a", "lossy": "#4f93c7"}


def rows(page):
    """{way: (bytes per parameter, whether every bit comes back)}."""
    found = re.findall(r"^\| ([^|]+?) \| ([\d.]+) \| ([\d.e+-]+) \| ([\d.e+-]+) \|", page, re.M)
    return {way: (float(size), float(update) == float(weights) == 0) for way, size, update, weights in found}


def chart(sizes):
    height = 40 + len(BARS) * (HEIGHT + 10) + 6
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 {height}" font-family="sans-serif" '
           'font-size="14">')
    yield "<title>Bytes per parameter of a trained GPT with its Adam state, without and with loss</title>"
    yield f'<rect width="720" height="{height}" fill="#fff"/>'
    yield ('<text x="12" y="24" font-weight="bold" fill="#111">Bytes per parameter: a GPT of 10.5 M parameters '
           'with its Adam state</text>')
    for i, (way, label) in enumerate(BARS):
        size, exact = sizes[way]
        loss, y = "lossless" if exact else "lossy", 40 + i * (HEIGHT + 10)
        width = size * WIDTH / 12
        yield f'<text x="12" y="{y + 18}" fill="#111">{label}</text>'
        yield f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{HEIGHT}" fill="{COLOURS[loss]}"/>'
        yield f'<text x="{LEFT + 8}" y="{y + 18}" fill="#111">{loss if i else "original"}</text>'
        yield f'<text x="{LEFT + width + 8:.1f}" y="{y + 18}" fill="#111">{size:.2f}</text>'
    yield "</svg>"


if __name__ == "__main__":
    print("\n".join(chart(rows(pathlib.Path(sys.argv[1]).read_text()))))
