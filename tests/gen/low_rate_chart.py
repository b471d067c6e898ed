#!/usr/bin/env python3
"""docs/low-rate.svg: how far a run at a low learning rate drifts when it is packed, from the table of docs/resume.md.

    low_rate_chart.py docs/resume.md > docs/low-rate.svg
"""
import math
import pathlib
import re
import sys

GROUPS = [("all", "#222", "all weights"), ("embeddings", "#c65d00", "embeddings"), ("matrices", "#0072b2", "matrices"),
          ("vectors", "#1b8a5a", "vectors")]
LEFT, RIGHT, TOP, ROW, LOW, HIGH = 190, 700, 84, 34, 0.2, 100.0


def rows(page):
    """(form, {group: percent}) of the table whose columns are the groups."""
    names = re.search(r"^\| weights \| B/param \| (.*) \|$", page, re.M)[1].split(" | ")
    table = page[page.index("| weights | B/param |"):].split("\n\n")[0]
    found = re.findall(r"^\| `?([^|`]+?)`?(?:, [^|]*)? \|[^|]*\| (.*%) \|$", table, re.M)
    return [(form, dict(zip(names, (float(x.strip("% ")) for x in cells.split("|"))))) for form, cells in found]


def place(percent):
    return LEFT + (RIGHT - LEFT) * math.log(percent / LOW) / math.log(HIGH / LOW)


def marker(kind, x, y, colour):
    if kind == 0:
        return f'<circle cx="{x:.1f}" cy="{y}" r="5" fill="{colour}"/>'
    points = {1: [(-6, 5), (6, 5), (0, -6)], 2: [(-5, -5), (5, -5), (5, 5), (-5, 5)],
              3: [(0, -7), (6, 0), (0, 7), (-6, 0)]}[kind]
    return f'<polygon points="{" ".join(f"{x + dx:.1f},{y + dy}" for dx, dy in points)}" fill="{colour}"/>'


def chart(table):
    height = TOP + ROW * len(table) + 40
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 {height}" font-family="sans-serif" font-size="14">'
    yield "<title>Distance from a run that was never packed, by how weights are stored</title>"
    yield f'<rect width="720" height="{height}" fill="#fff"/>'
    yield ('<text x="12" y="24" font-weight="bold" fill="#111">320 steps at a learning rate of 1e-6, packed eight '
           'times</text>')
    yield '<text x="12" y="42" font-size="12" fill="#555">distance from the run that was never packed, % of what it moved, log</text>'
    for i, (_, colour, label) in enumerate(GROUPS):
        yield marker(i, LEFT + 8 + 124 * i, 62, colour)
        yield f'<text x="{LEFT + 20 + 124 * i}" y="67" fill="#111">{label}</text>'
    for tick in (0.3, 1, 3, 10, 30):
        x = place(tick)
        yield f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{height - 36}" stroke="#e3e3e3"/>'
        yield f'<text x="{x:.1f}" y="{height - 16}" text-anchor="middle" font-size="12" fill="#555">{tick:g}%</text>'
    for i, (form, values) in enumerate(table):
        y = TOP + ROW * i + ROW // 2
        xs = [place(values[name]) for name, _, _ in GROUPS]
        yield f'<text x="12" y="{y + 5}" fill="#111">{form}</text>'
        yield f'<line x1="{min(xs):.1f}" y1="{y}" x2="{max(xs):.1f}" y2="{y}" stroke="#bbb"/>'
        for k, x in sorted(enumerate(xs), reverse=True):
            yield marker(k, x, y, GROUPS[k][1])
    yield "</svg>"


if __name__ == "__main__":
    print("\n".join(chart(rows(pathlib.Path(sys.argv[1]).read_text()))))
