"""Table "Bits and updates" of docs/codecs.md: what forms of the state keep of an update and of sqrt(v).

    bits_and_updates.py TERSOR FILE...      safetensors files with W, W.exp_avg and W.exp_avg_sq

For each file and form the NMSE, median and worst of the parameters, of the update that comes back and of sqrt(v);
then those of sqrt(v) and of the weights' way after the 16 steps of tests/data/tiny-gpt/recording.
"""
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
from safetensors.numpy import load_file

DATA = pathlib.Path(__file__).parents[1] / "data" / "tiny-gpt"
FORMS = ["flash", "tight", "fine", "ratio10/log6", "four", "ratio3/log3"]


def squares(x):
    return float((x.astype(np.float64) ** 2).sum())


def spread(errors):
    return f"{np.median(errors):.1e}, {max(errors):.1e}"


def moments(tensors, name):
    return tensors[name + ".exp_avg"], np.sqrt(tensors[name + ".exp_avg_sq"])


def errors(want, got):
    """Of updates and of roots, by parameter."""
    names = [name for name in want if name + ".exp_avg_sq" in want]
    pairs = [(moments(want, name), moments(got, name)) for name in names]
    updates = [(m / (r + np.float32(1e-8)), m2 / (r2 + np.float32(1e-8))) for (m, r), (m2, r2) in pairs]
    return ([squares(u2 - u) / squares(u) for u, u2 in updates],
            [squares(r2 - r) / squares(r) for (_, r), (_, r2) in pairs])


def main(tersor, *files):
    with tempfile.TemporaryDirectory() as folder:
        packed, out = f"{folder}/p.safetensors", f"{folder}/o.safetensors"

        def run(*args):
            subprocess.run([tersor, *args, "-f", "-qq"], check=True)

        def replayed(form):
            run("replay", DATA / "checkpoint.safetensors", DATA / "recording", "-o", packed, "--state", form)
            if form == "fp32":
                return load_file(packed)
            run("unpack", packed, "-o", out)
            return load_file(out)

        for file in files:
            for form in FORMS:
                run("pack", file, "-o", packed, "--state", form, "--weights", "f32")
                run("unpack", packed, "-o", out)
                updates, roots = errors(load_file(file), load_file(out))
                print(f"{file} {form}: update {spread(updates)}; sqrt(v) {spread(roots)}")
        first, want = load_file(DATA / "checkpoint.safetensors"), replayed("fp32")
        for form in FORMS:
            got = replayed(form)
            _, roots = errors(want, got)
            ways = [squares(got[n] - want[n]) / squares(want[n] - first[n]) for n in want if n + ".exp_avg" in want]
            print(f"16 steps {form}: sqrt(v) {spread(roots)}; weights {spread(ways)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
