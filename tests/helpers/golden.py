"""The golden reports of sweeps: tests/golden/sweep-CODEC.txt, one line per run of equal exponents.

    python tests/helpers/golden.py REPORT.json      write them anew from `tersor sweep --json=REPORT.json`
    python tests/helpers/golden.py --check REPORT.json      compare them with it
    python tests/helpers/golden.py --table > docs/internals/sweeps.csv      what each codec gives back, from them

A line has the figures of one exponent field, or of each of several: `8-253 16777216 ...`.
"""
import json
import pathlib
import sys

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "golden"
FIGURES = ("count", "exact", "overflow", "nan_in", "nan_out", "compared", "rel_sum", "max_rel",
           "max_ulp")


def text_of(codec):
    """The golden text of one entry of a report's `codecs`."""
    lines, last = [], None
    for row in codec["exponents"]:
        values = " ".join(str(row[figure]) for figure in FIGURES)
        if last and last[2] == values and row["exponent"] == last[1] + 1:
            last[1] += 1
        else:
            last = [row["exponent"], row["exponent"], values]
            lines.append(last)
    ranges = [f"{first}-{end}" if end > first else f"{first}" for first, end, _ in lines]
    return (f"# {codec['codec']}: exponent {' '.join(FIGURES)}\n"
            + "".join(f"{r} {values}\n" for r, (_, _, values) in zip(ranges, lines)))


def parse(text):
    """{exponent: {figure: value}}; the sum is an integer in units of 2^-47."""
    rows = {}
    for line in text.splitlines()[1:]:
        exponents, *values = line.split()
        first, _, last = exponents.partition("-")
        row = dict(zip(FIGURES, values))
        row = {figure: int(value, 16) if figure == "rel_sum" else float(value)
               if figure == "max_rel" else int(value) for figure, value in row.items()}
        rows |= {e: row for e in range(int(first), int(last or first) + 1)}
    return rows


def path_of(codec):
    return FOLDER / f"sweep-{codec}.txt"


def rows_of(codec):
    return parse(path_of(codec).read_text())


def finite(rows):
    """The totals of rows 0 to 254."""
    total = dict.fromkeys(FIGURES, 0)
    for exponent, row in rows.items():
        for figure in FIGURES if exponent < 255 else ():
            if figure.startswith("max"):
                total[figure] = max(total[figure], row[figure])
            else:
                total[figure] += row[figure]
    return total


def mean(row):
    return row["rel_sum"] / 2**47 / row["compared"] if row["compared"] else 0


def share(row):
    return f"{100 * row['exact'] / row['count']:.4f}"


def table():
    """Of each codec, the figures of all finite values and of the binade from 1 to 2, with the binades like it."""
    lines = ["codec,exact percent,overflow percent,exact percent 1 to 2,mean 1 to 2,max 1 to 2,alike from 2^,alike to 2^"]
    for path in sorted(FOLDER.glob("sweep-*")):
        rows = parse(path.read_text())
        total, one = finite(rows), rows[127]
        first = min(e for e in range(128) if all(rows[i] == one for i in range(e, 128)))
        last = max(e for e in range(127, 255) if all(rows[i] == one for i in range(127, e + 1)))
        lines.append(f"{path.stem[6:]},{share(total)},{100 * total['overflow'] / total['count']:.4f},{share(one)},"
                     f"{mean(one):.4g},{one['max_rel']:.3g},{first - 127},{last - 127}")
    return "\n".join(lines) + "\n"


def check(report):
    """How many codecs of a report are not as in the golden ones; it has all of them."""
    found = {codec["codec"]: text_of(codec) for codec in report["codecs"]}
    assert {path_of(codec).name for codec in found} == {
        path.name for path in FOLDER.glob("sweep-*")}
    wrong = [codec for codec, text in found.items() if text != path_of(codec).read_text()]
    for codec in wrong:
        lines = zip(found[codec].splitlines(), path_of(codec).read_text().splitlines())
        print(codec, "found, expected:", *next((pair for pair in lines if pair[0] != pair[1]),
                                               ["another number of lines"]), sep="\n  ")
    print(f"{len(found) - len(wrong)} codecs as in tests/golden, {len(wrong)} not")
    return len(wrong)


def main():
    if sys.argv[1] == "--table":
        print(table(), end="")
        return
    with open(sys.argv[-1], encoding="utf-8") as file:
        report = json.load(file)
    assert (report["first"], report["last"]) == (0, 2**32 - 1)
    if sys.argv[1] == "--check":
        sys.exit(check(report) != 0)
    FOLDER.mkdir(exist_ok=True)
    for codec in report["codecs"]:
        path_of(codec["codec"]).write_text(text_of(codec))


if __name__ == "__main__":
    main()
