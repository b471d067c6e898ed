"""Guides: what codecs.md, ci.md and install.md say is run, and the pages of a task are read in five minutes."""
import os
import re
import shutil
import subprocess

import numpy as np
import pytest
from conftest import BINARY, DATA, ROOT
from safetensors.numpy import load_file, save_file

DOCS, TRAINER, GPT = ROOT / "docs", DATA / "frameworks" / "trainer", DATA / "tiny-gpt"


def shell(command, folder, status=0):
    """What a command prints on standard error, in a folder in which `tersor` is the program under test."""
    done = subprocess.run(["bash", "-ec", f'tersor() {{ "{os.path.abspath(BINARY)}" "$@"; }}\n{command}'], cwd=folder,
                          capture_output=True, text=True, timeout=120, env=dict(os.environ, LC_ALL="C"))
    assert done.returncode == status, f"{command}\n{done.stdout}{done.stderr}"
    return done.stderr


@pytest.fixture
def folder(tmp_path):
    for name in ("checkpoint-30", "recording"):
        shutil.copytree(TRAINER / name, tmp_path / name)
    return tmp_path


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", (DOCS / page).read_text(), re.M | re.S)


# codecs.md

def test_commands_of_choose_run(folder):
    shutil.copytree(folder / "checkpoint-30", folder / "checkpoint-31")
    commands = re.findall(r"^\|.*?\| `(tersor [^`]*)`", (DOCS / "codecs.md").read_text(), re.M)
    assert len(commands) > 8
    for i, command in enumerate(commands):
        for word, name in (("CK", "checkpoint-30"), ("REC", "recording"), ("OUT", f"out-{i}")):
            command = re.sub(rf"\b{word}\b", name, command)
        shell(command, folder)
    recipes = [block for block in blocks("codecs.md", "sh") if "checkpoint-30" in block]
    assert len(recipes) == 2
    for block in recipes:
        shell(block, folder)


def test_sizes_of_choose_are_of_seven_billion():
    rows = re.findall(r"\| ([\d.]+) \| (\d+) GB \|", (DOCS / "codecs.md").read_text())
    assert len(rows) > 6 and all(round(7 * float(size)) == int(gigabytes) for size, gigabytes in rows)


# ci.md

def steps(workflow):
    """What `run:` has in a workflow: after it, or in the deeper lines below it, of which `>` makes one."""
    found = []
    for indent, mark, below in re.findall(r"^( +)run: ?(.*)\n((?:\1 +.*\n)*)", workflow, re.M):
        lines = [line.strip() for line in below.splitlines()]
        found.append({">": " ".join(lines), "|": "\n".join(lines)}.get(mark, mark))
    return found


def test_workflow_of_ci_runs_and_fails_where_it_should(folder):
    (folder / "ci").mkdir()
    for name in ("checkpoint-30", "recording"):
        shutil.move(folder / name, folder / "ci")
    (workflow,), (baseline,) = blocks("ci.md", "yaml"), blocks("ci.md", "sh")
    shell(baseline.splitlines()[0], folder)
    install, *commands = steps(workflow)
    assert install.startswith("pip install") and len(commands) == 3
    for command in commands:
        shell(command, folder)
    for name in ("replay.html", "audit.html", "pack.json", "restored"):
        assert (folder / name).exists()
    replay, audit, pack = commands
    assert "found update-nmse" in shell(replay.replace("flash", "bitsandbytes"), folder, 1)
    shell(audit.replace("--codec", "--scale f32 --codec"), folder, 1)
    shutil.rmtree(folder / "packed")
    assert "found update-nmse" in shell(pack.replace("--strict", "--momentum e5m2"), folder, 1)


def test_sizes_of_ci_are_those_of_the_example(folder):
    text = (DOCS / "ci.md").read_text()
    shell("tersor convert recording -o coded --entropy; tersor audit checkpoint-30 "
          "--codec softsign8,sqrt8,bf16+ulp8 --json=audit.json", folder)
    for name in ("checkpoint-30", "recording", "coded"):
        size = sum(path.stat().st_size for path in (folder / name).rglob("*") if path.is_file())
        assert f"{size / 1e6:.2f} MB" in text, name
    assert f"{(folder / 'audit.json').stat().st_size / 1e3:.0f} kB" in text


# install.md

def spoilt(folder):
    """Files with which messages appear."""
    for name in ("checkpoint.safetensors", "checkpoint.pt"):
        shutil.copy(GPT / name, folder)
    shutil.copytree(GPT / "recording", folder / "other-recording")
    shutil.copy(DATA / "frameworks" / "states" / "frozen-layers.pt", folder)
    (folder / "old.bin").write_bytes(b"\x80\x02}q\x00.")
    (folder / "lfs.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n")
    tensors = load_file(GPT / "checkpoint.safetensors")
    save_file({name: x.astype(np.float16) for name, x in tensors.items() if name.endswith("weight")},
              folder / "half.safetensors")
    name = next(name for name in tensors if name.endswith("weight"))
    tensors[name].flat[3] = np.nan
    save_file(tensors, folder / "nan.safetensors")
    shell("tersor pack checkpoint-30 -o packed; tersor pack checkpoint.safetensors -o p.safetensors\n"
          "tersor pack checkpoint.safetensors -o d.safetensors --delta p.safetensors", folder)
    data = (folder / "p.safetensors").read_bytes()
    (folder / "bad.safetensors").write_bytes(data[:-5] + bytes([data[-5] ^ 1]) + data[-4:])
    (folder / "cut.safetensors").write_bytes(data[:-100])


# What makes each message appear, its exit status, and a way out that the page names.
MESSAGES = {
    "output exists; --force replaces it": (
        "tersor pack checkpoint-30 -o packed", 4, "tersor pack checkpoint-30 -o packed -f"),
    "nothing was packed: ...": (
        "tersor pack half.safetensors -o x", 0, "tersor pack half.safetensors -o y --entropy"),
    "ambiguous: ... numbered states of shape ...": ("tersor pack frozen-layers.pt -o x", 0, None),
    "has a file tersor.json, so it is a packed directory already": (
        "tersor pack packed -o x", 3, "tersor convert packed -o archive --entropy"),
    "is not a packed file": (
        "tersor unpack checkpoint.pt -o x", 3, "tersor convert checkpoint.pt -o x.safetensors"),
    "a pointer of Git LFS, not the file itself": ("tersor inspect lfs.safetensors", 3, None),
    "a Python pickle outside of an archive": ("tersor inspect old.bin", 3, None),
    "(truncated file?)": ("tersor unpack cut.safetensors -o x", 3, None),
    "is damaged: found ...": ("tersor unpack bad.safetensors -o x", 3, None),
    "is not what ... was packed from": ("tersor verify p.safetensors --against nan.safetensors", 1, None),
    "is a delta to ..., which is missing": (
        "mv p.safetensors b.safetensors; tersor unpack d.safetensors -o x", 4,
        "tersor unpack d.safetensors -o x --base b.safetensors"),
    "found ... error ..., expected at most ...": (
        "tersor pack checkpoint-30 -o x --max-error nmse=1e-5", 1,
        "tersor pack checkpoint-30 -o x --max-error nmse=1e-5 --momentum f32 --variance f32"),
    "packed so, the updates of ... tensors are 10% of their length off or more": (
        "tersor pack checkpoint-30 -o x --variance ulinear8 --scale f16", 0, "tersor audit checkpoint-30"),
    "found ... non-finite value": ("tersor pack nan.safetensors -o x", 0, None),
    "found no weight of this name in ..., expected one": (
        "tersor replay checkpoint-30 other-recording", 3, "tersor replay checkpoint-30 recording"),
    "found gradients of this step first, expected those of step ...": (
        "tersor replay checkpoint.pt other-recording --steps 405..", 3,
        "tersor replay checkpoint.pt other-recording --steps 401..404"),
}


def test_page_has_these_messages():
    part = re.search(r"^## Messages\n(.*?)^## ", (DOCS / "install.md").read_text(), re.M | re.S)[1]
    assert re.findall(r"^### (.*)$", part, re.M) == list(MESSAGES)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: re.sub(r"\W+", "-", message)[:40])
def test_message_of_the_page_appears_and_has_a_way_out(folder, message):
    command, status, way_out = MESSAGES[message]
    spoilt(folder)
    said = " ".join(shell(command, folder, status).split())
    assert re.search(".+".join(map(re.escape, message.split("..."))).replace(r"\ .+", " .+"), said), said
    if way_out:
        shell(way_out, folder)


# Reading

# A task, and the sections that a new user reads for it: a page, with headings or as a whole.
TASKS = {
    "shrink a Trainer folder and resume": [("../README.md", ["Get it", "Four commands"]), ("tour.md", ["3. Go on"])],
    "choose a codec": [("codecs.md", ["What to choose", "How large", "Which form"])],
    "record and replay": [("replay.md", ["Record and replay"]), ("tour.md", ["6. What a form"])],
    "a gate in CI": [("ci.md", [])],
    "64 nodes": [("scale.md", ["Parts", "Under a"])],
}


def words(page, headings):
    """Words of a page, or of its first paragraphs and the sections that begin so."""
    parts = re.split(r"^(?=#+ )", (DOCS / page).read_text(), flags=re.M)
    wanted = [p for p in parts if not headings or p.startswith("# ") or
              any(re.match(rf"#+ {re.escape(h)}", p) for h in headings)]
    if headings:
        assert len([p for p in wanted if not p.startswith("# ")]) >= len(headings), (page, headings)
    return sum(len(p.split()) for p in wanted)


@pytest.mark.parametrize("task", TASKS)
def test_task_is_read_in_five_minutes(task):
    """At 200 words a minute."""
    assert sum(words(page, headings) for page, headings in TASKS[task]) <= 1000
