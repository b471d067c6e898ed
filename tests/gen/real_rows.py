#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every 128th row of the matrices of a trained GPT, of its AdamW state and of its next gradients.

    real_rows.py CHECKPOINT.safetensors OUT_DIRECTORY GRADIENTS.safetensors...

CHECKPOINT has `<name>`, `<name>.exp_avg` and `<name>.exp_avg_sq` after 300 steps; a file of GRADIENTS, in
BF16, is of a step from 301 on.  Made tests/data/real-gpt-rows of a GPT of 0.86 M parameters.
"""
import json
import pathlib
import sys

import numpy as np
import safetensors
from safetensors.numpy import load_file

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from conftest import write_source  # noqa: E402

EVERY, FIRST = 128, 301
start, out = load_file(sys.argv[1]), pathlib.Path(sys.argv[2])
(out / "recording").mkdir(parents=True)
rows = {}
for name, x in start.items():
    if x.ndim == 2 and name + ".exp_avg" in start:
        count = max(1, round(len(x) / EVERY))
        rows[name] = np.arange(count) * len(x) // count + len(x) // count // 2


write_source(out / "start.safetensors", {
    name + part: start[name + part][rows[name]] for name in rows for part in ("", ".exp_avg", ".exp_avg_sq")})
manifest = {"format": "tersor-recording", "version": 1, "optimizer": "adamw",
            "param_groups": [{"params": list(rows), "betas": [0.9, 0.95], "weight_decay": 0.1, "lr": 1e-3}], "steps": []}
for step, source in enumerate(sys.argv[3:], FIRST):
    arrays = dict(safetensors.deserialize(pathlib.Path(source).read_bytes()))
    gradients = {name: np.frombuffer(arrays[name]["data"], np.uint16).reshape(start[name].shape)[rows[name]]
                 for name in rows}
    write_source(out / "recording" / f"step-{step}.safetensors",
                 {name: ("BF16", x.shape, x.tobytes()) for name, x in gradients.items()})
    manifest["steps"].append({"step": step, "file": f"step-{step}.safetensors"})
(out / "recording" / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
