"""docs/python.md and README: the blocks of Python run, and resume what they saved."""
import os
import re
import shutil
import subprocess

import pytest

import torchfile
from conftest import BINARY, DATA, ROOT
from test_torch_module import PACKAGE, binary_for_examples  # noqa: F401: a fixture that is used for all

BLOCKS = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs" / "python.md").read_text(), re.M | re.S)
README = re.search(r"^```python\n(import tersor.torch.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)[1]
BEFORE = """
import torch
model = torch.nn.Linear(64, 33)
optimizer = torch.optim.AdamW(model.parameters())
steps = range(1, 4)
def train(model, optimizer):
    optimizer.zero_grad()
    model(torch.ones(8, 64)).square().mean().backward()
    optimizer.step()
"""


def run(folder, script):
    env = {**os.environ, "PYTHONPATH": str(PACKAGE), "TERSOR": os.path.abspath(BINARY)}
    done = subprocess.run([torchfile.TORCH, "-W", "ignore", "-c", script], cwd=folder, env=env, capture_output=True,
                          text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("script, names", [(BLOCKS[0], ["step-100.tersor", "step-50.tersor"]),
                                           (BEFORE + README, ["step-2.tersor", "step-3.tersor"])])
def test_example_saves_and_resumes(tmp_path, script, names):
    (tmp_path / "run").mkdir()
    resumed = f"""
import json, os, sys
sys.path.insert(0, {str(PACKAGE)!r})
os.chdir({str(tmp_path)!r})
{script}
print(json.dumps([last, float(next(iter(optimizer.state.values()))['step'])]))
"""
    (first, steps), (again, more) = (torchfile.run_torch(resumed) for _ in range(2))
    assert sorted(os.listdir(tmp_path / "run")) == names
    assert first is None and again.endswith(("step-100.tersor", "step-3.tersor")) and more == 2 * steps


def test_commands_and_tensors_of_the_page(tmp_path):
    shutil.copytree(DATA / "frameworks" / "trainer" / "checkpoint-30", tmp_path / "checkpoint-30")
    block = next(b for b in BLOCKS if "tersor.open" in b)
    said = run(tmp_path, block + "\nprint(report.passed, rows.shape)").splitlines()
    assert len(said) == 22 and said[-1].startswith("True (2,")
