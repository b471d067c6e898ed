#!/usr/bin/env python3
"""The tables of docs/resume.md and, with --figure, docs/resume.svg, from what resume_study.py measured.

    resume_tables.py docs/resume [--figure docs/resume.svg]

Tables are printed as Markdown, as docs/resume.md has them.  The figure needs matplotlib.
"""
import argparse
import collections
import csv
import pathlib
import statistics
import sys

NAMES = {"control": "nothing (control)", "control again": "nothing, run again", "other data": "nothing, other batches", "FlashOptim's form": "FlashOptim's form",
         "tersor": "tersor's default", "tersor, 20 times": "the same, 20 times", "tight": "`--state tight`",
         "coat": "`--state coat`", "bitsandbytes": "`--state bitsandbytes`", "BF16 weights alone": "BF16 weights alone"}
RUNS = {("adamw", "0.95", "1500"): "AdamW, beta2 0.95", ("adamw", "0.999", "1500"): "AdamW, beta2 0.999",
        ("adamw", "0.95", "6000"): "AdamW, beta2 0.95, 6,000 steps", ("lion", "0.99", "1500"): "Lion"}


def run_of(row):
    return row["optimizer"], row["beta2"], row["steps"]


def read(folder):
    """{run: {form: {seed: last held-out loss}}}, {run: {form: [largest step over lr]}}, and both as rows."""
    final = collections.defaultdict(lambda: collections.defaultdict(dict))
    steps = collections.defaultdict(lambda: collections.defaultdict(list))
    with open(folder / "losses.csv") as file:
        losses = list(csv.DictReader(file))
    with open(folder / "resumes.csv") as file:
        resumes = list(csv.DictReader(file))
    for row in losses:
        if row["held_out"] and row["form"] != "before":
            final[run_of(row)][row["form"]][int(row["seed"])] = float(row["held_out"])
    for row in resumes:
        steps[run_of(row)][row["form"]].append(float(row["max_over_lr"]))
    return final, steps, losses


def differences(forms, form):
    """Last held-out loss less that of the control of the same seed."""
    return [loss - forms["control"][seed] for seed, loss in sorted(forms[form].items())]


def tables(final, steps):
    for run, title in RUNS.items():
        if run not in final:
            continue
        forms = final[run]
        seeds = len(forms["control"])
        print(f"\n**{title}**, {seeds} seed{'s' * (seeds > 1)}\n")
        print("| the state goes through | held-out loss | less the control's, in 0.001 | largest step / lr |")
        print("|---|---|---|---|")
        for form, name in NAMES.items():
            if form not in forms:
                continue
            away = [1000 * d for d in differences(forms, form)]
            shown = "" if form == "control" else ", ".join(f"{d:+.1f}" for d in away)
            print(f"| {name} | {statistics.mean(forms[form].values()):.4f} | {shown} | {max(steps[run][form]):.2f} |")


def figure(final, steps, losses, path):
    import matplotlib
    matplotlib.use("svg")
    import matplotlib.pyplot as plt
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "resume", "font.family": "sans-serif",
                                "font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    forms = [form for form in NAMES if form != "control"]
    labels = [NAMES[form].replace("`", "") for form in forms]
    colours = dict(zip(RUNS, ["#1f6feb", "#d9822b", "#8a3ffc", "#2f9e63"]))
    page, (left, middle, right) = plt.subplots(1, 3, figsize=(9.6, 3.4))
    run, seed = next(iter(RUNS)), "1"
    for form, colour, width in [("BF16 weights alone", "#c0392b", 1.2), ("control", "#888888", 3.0),
                                ("tersor, 20 times", "#1f6feb", 1.0)]:
        rows = [r for r in losses if run_of(r) == run and r["seed"] == seed and r["held_out"]
                and r["form"] in (form, "before")]
        left.plot([int(r["step"]) for r in rows], [float(r["held_out"]) for r in rows], color=colour, lw=width,
                  label=NAMES[form].replace("the same, 20 times", "tersor's default, 20 times"))
    left.set(xlabel="step", ylabel="held-out loss", ylim=(3.2, 5.2))
    left.set_title("AdamW, beta2 0.95, seed 1", fontsize=9)
    left.legend(frameon=False, fontsize=8)
    for i, (run, colour) in enumerate(colours.items()):
        if run not in final:
            continue
        for row, form in enumerate(forms):
            if form not in final[run]:
                continue
            at = row + 0.17 * (i - 1.5)
            away = [1000 * d for d in differences(final[run], form)]
            middle.plot(away, [at] * len(away), "o", ms=3.5, color=colour)
            right.plot([max(steps[run][form])], [at], "o", ms=3.5, color=colour)
    for axis in middle, right:
        axis.set_ylim(len(forms) - 0.5, -0.5)
        axis.set_yticks(range(len(forms)), labels)
        axis.grid(axis="y", color="#eeeeee")
        axis.set_axisbelow(True)
    middle.axvline(0, color="#888888", lw=0.8)
    middle.set(xlabel="held-out loss less the control's, 0.001")
    right.tick_params(labelleft=False)
    right.set_xscale("log")
    right.set_xticks([1, 3, 10, 30], ["1", "3", "10", "30"])
    right.minorticks_off()
    right.axvline(1, color="#888888", lw=0.8)
    right.set(xlabel="largest step / lr")
    dots = [plt.Line2D([], [], marker="o", ls="", ms=3.5, color=colours[run], label=RUNS[run]) for run in final]
    page.legend(handles=dots, loc="upper right", ncols=4, frameon=False, fontsize=8)
    page.subplots_adjust(left=0.06, right=0.98, bottom=0.15, top=0.86, wspace=0.12)
    left.set_position([0.06, 0.15, 0.27, 0.71])
    middle.set_position([0.50, 0.15, 0.27, 0.71])
    right.set_position([0.79, 0.15, 0.19, 0.71])
    page.savefig(path, metadata={"Date": None, "Creator": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--figure", type=pathlib.Path)
    args = parser.parse_args()
    final, steps, losses = read(args.folder)
    tables(final, steps)
    if args.figure:
        figure(final, steps, losses, args.figure)


if __name__ == "__main__":
    sys.exit(main())
