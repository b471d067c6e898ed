"""The golden reports of sweeps over all 2^32 bit patterns, in tests/golden.

    python tests/helpers/golden.py REPORT.json      write them anew from `tersor sweep --json=REPORT.json`
    python tests/helpers/golden.py --check REPORT.json      compare them with it
    python tests/helpers/golden.py --table > docs/internals/sweeps.csv      what each codec gives back, from them

sweep-CODEC.txt is a report, one line per run of equal exponents: the figures of one exponent field, or of each of
several, as in `8-253 16777216 ...`.  Codecs that differ from these only in their number of bits are lines of
digests.txt: of the whole report, and of its rows at STRATA.
"""
import functools
import hashlib
import json
import pathlib
import sys

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "golden"
FIGURES = ("count", "exact", "overflow", "nan_in", "nan_out", "compared", "rel_sum", "max_rel",
           "max_ulp")
WHOLE = ("f32", "bf16", "fp16", "bf16+bf16", "fp16+fp16", "bf16+ulp8", "bf16+ulp16", "fp16+ulp8", "fp16+ulp16",
         "bf16+exact16", "bf16+rn4", "bf16+rn6", "bf16+rn8", "bf16+trunc8", "bf16+trunc16", "fp16+trunc8",
         "fp16+trunc13", "e5m2+trunc8", "e4m3+trunc8")
# The exponents at which something begins or ends, for one codec or another.
STRATA = (0, 7, 90, 102, 112, 142, 254, 255)


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
    """The rows of a codec of WHOLE."""
    return parse(path_of(codec).read_text())


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def row_digest(row):
    return digest(" ".join(str(row[figure]) for figure in FIGURES))


def digests_of(text):
    """Those of a report: without its first line, which names the codec, and of its rows at STRATA."""
    rows = parse(text)
    return digest(text.partition("\n")[2]), *(row_digest(rows[exponent]) for exponent in STRATA)


@functools.cache
def digests():
    """{codec: what digests_of() gives} of every codec."""
    kept = [line.split() for line in (FOLDER / "digests.txt").read_text().splitlines() if line[0] != "#"]
    return {codec: tuple(values) for codec, *values in kept} | {
        codec: digests_of(path_of(codec).read_text()) for codec in WHOLE}


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
    assert set(found) == set(digests())
    wrong = [codec for codec, text in found.items() if digests_of(text) != digests()[codec]]
    for codec in wrong:
        golden = path_of(codec).read_text() if codec in WHOLE else ""
        lines = zip(found[codec].splitlines(), golden.splitlines())
        print(codec, "found, expected:", *next((pair for pair in lines if pair[0] != pair[1]),
                                               ["another report"]), sep="\n  ")
    print(f"{len(found) - len(wrong)} codecs as in tests/golden, {len(wrong)} not")
    return len(wrong)


def write(texts):
    """Both sorts of files, from {codec: the text of its report}."""
    FOLDER.mkdir(exist_ok=True)
    for codec in WHOLE:
        path_of(codec).write_text(texts[codec])
    (FOLDER / "digests.txt").write_text(
        f"# codec, digest of its report, and of its rows at exponents {' '.join(map(str, STRATA))}\n"
        + "".join(f"{' '.join((codec, *digests_of(text)))}\n" for codec, text in texts.items() if codec not in WHOLE))


def main():
    if sys.argv[1] == "--table":
        print(table(), end="")
        return
    with open(sys.argv[-1], encoding="utf-8") as file:
        report = json.load(file)
    assert (report["first"], report["last"]) == (0, 2**32 - 1)
    if sys.argv[1] == "--check":
        sys.exit(check(report) != 0)
    write({codec["codec"]: text_of(codec) for codec in report["codecs"]})


if __name__ == "__main__":
    main()
