#!/usr/bin/env python3
"""The tables of docs/resume.md and, with --figure, docs/series.svg, from what series_study.py measured.

    series_tables.py docs/series/study.csv [--figure docs/series.svg]

Tables are printed as Markdown, as docs/resume.md has them: means over the seeds.
"""
import argparse
import collections
import csv
import math
import statistics

TIERS = ["exact", "1e-3", "1e-2", "trace"]
PEERS = ["Check-N-Run, 8 bits", "Check-N-Run, 4 bits", "ExCP"]
CONTROLS = ["repeat", "other batches"]
NAMES = {"repeat": "nothing, run again", "other batches": "nothing, other batches", "ExCP": "ExCP's recipe",
         **{t: f"tier `{t}`" for t in TIERS}}
FIGURES = ["first", "bytes", "weight", "ulps", "update", "variance", "less_control", "moved"]


def read(path):
    """{(rate, beta2, form): {figure: mean over the seeds}}; of losses the lists."""
    found = collections.defaultdict(lambda: collections.defaultdict(list))
    with open(path) as file:
        for row in csv.DictReader(file):
            for figure in FIGURES:
                if row[figure]:
                    found[row["rate"], row["beta2"], row["form"]][figure].append(float(row[figure]))
    return {key: {f: v if f == "less_control" else statistics.mean(v) for f, v in x.items()} for key, x in found.items()}


def number(x, form):
    return "" if x is None else format(x, form)


def table(data, beta2):
    yield f"**beta2 {beta2}**"
    yield ""
    yield "| | first, B/param | each later one | weights | ULPs | updates | roots of v | loss less control's, in 0.001 |"
    yield "|---|---|---|---|---|---|---|---|"
    for form in CONTROLS + TIERS + PEERS:
        x = data["schedule", beta2, form]
        losses = ", ".join(f"{1000 * v:+.2f}" for v in x["less_control"])
        cells = [number(x.get(f), form) for f, form in (("first", ".2f"), ("bytes", ".2f"), ("weight", ".1e"),
                                                        ("ulps", ".2g"), ("update", ".1e"), ("variance", ".1e"))]
        yield f"| {NAMES.get(form, form)} | " + " | ".join(cells) + f" | {losses} |"
    yield ""


def low_table(data):
    yield "**Learning rate 1e-6**"
    yield ""
    yield "| | B/param, beta2 0.95 | 0.999 | updates, 0.95 | 0.999 | end of the path, 0.95 | 0.999 |"
    yield "|---|---|---|---|---|---|---|"
    for form in TIERS + PEERS:
        x, y = (data["1e-6", beta2, form] for beta2 in ("0.95", "0.999"))
        cells = [f"{v[f]:{form_}}" for f, form_ in (("bytes", ".2f"), ("update", ".1e"), ("moved", ".1%"))
                 for v in (x, y)]
        yield f"| {NAMES.get(form, form)} | " + " | ".join(cells) + " |"


WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 380, 62, 24, 46, 52
X_RANGE, Y_RANGE = (0.1, 6), (1e-5, 100)


def place(x, y):
    def scale(v, low, high):
        return (math.log10(v) - math.log10(low)) / (math.log10(high) - math.log10(low))
    return (LEFT + scale(x, *X_RANGE) * (WIDTH - LEFT - RIGHT),
            HEIGHT - BOTTOM - scale(y, *Y_RANGE) * (HEIGHT - TOP - BOTTOM))


def label(x, y, text, left):
    """Beside a point."""
    anchor = "end" if left else "start"
    return f'<text x="{x - 10 if left else x + 10:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'


def figure(data):
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
           'font-size="13" fill="#222">',
           '<title>Bytes per parameter of a checkpoint in a series against the error of its updates</title>',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
           f'<text x="{LEFT}" y="22" font-size="15">Error of the next update against bytes per parameter, each later '
           'checkpoint</text>']
    for x in (0.1, 0.2, 0.5, 1, 2, 5):
        at = place(x, Y_RANGE[0])
        out += [f'<path d="M{at[0]:.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#ddd"/>',
                f'<text x="{at[0]:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{x:g}</text>']
    for k in range(-5, 3):
        at = place(X_RANGE[0], 10.0**k)
        out += [f'<path d="M{LEFT} {at[1]:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>',
                f'<text x="{LEFT - 8}" y="{at[1] + 4:.1f}" text-anchor="end">1e{k}</text>']
    out += [f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 12}" text-anchor="middle">bytes per parameter '
            '(FP32: 12)</text>']
    points = [place(data["schedule", "0.95", t]["bytes"], data["schedule", "0.95", t]["update"]) for t in TIERS]
    out.append(f'<path d="M{"L".join(f"{x:.1f} {y:.1f}" for x, y in points)}" fill="none" stroke="#1a6fb5" '
               'stroke-width="2"/>')
    for (x, y), t in zip(points, TIERS):
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="#1a6fb5"/>', label(x, y + 16, f"tersor, {t}", True)]
    for form in PEERS:
        one = data["schedule", "0.95", form]
        x, y = place(one["bytes"], one["update"])
        out += [f'<rect x="{x - 5:.1f}" y="{y - 5:.1f}" width="10" height="10" fill="#b5521a"/>',
                label(x, y + 4, form, x > WIDTH * 0.7)]
    return "\n".join(out + ["</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study")
    parser.add_argument("--figure")
    args = parser.parse_args()
    data = read(args.study)
    for beta2 in ("0.95", "0.999"):
        print("\n".join(table(data, beta2)))
    print("\n".join(low_table(data)))
    if args.figure:
        with open(args.figure, "w") as file:
            file.write(figure(data))


if __name__ == "__main__":
    main()
