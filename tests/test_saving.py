"""tersor.torch.save and async_save: a running job's state packed from its memory (packaging/wheel/tersor/saving.py)."""
import json
import os
import pathlib
import signal
import subprocess
import time

import pytest

import reader
import torchfile
from conftest import BINARY, ROOT, run_tersor
from test_companion import LIBRARY
from test_torch_module import PACKAGE, binary_for_examples  # noqa: F401: a fixture that is used for all

START = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
import torch, tersor.torch as tt
from tersor import saving
folder = sys.argv[2]

def make(bad=()):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(100, 64), torch.nn.Linear(64, 300), torch.nn.LayerNorm(300),
                                torch.nn.Linear(300, 1100, bias=False))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randint(0, 100, (8,))).square().mean().backward()
        optimizer.step()
    return model, optimizer
"""


def run(script, *args, **kwargs):
    return torchfile.run_torch(START + script, PACKAGE, *args, **kwargs)


# ---- The file --------------------------------------------------------------------------------------

SAME = """
found = []
for i, form in enumerate(json.loads(sys.argv[3])):
    model, optimizer = make()
    more = {"epoch": 3, "turned": torch.arange(40.0).reshape(5, 8).t(), "gaps": torch.arange(40)[::2], "none": None,
            "tied": [model[1].weight, model[1].weight], "empty": torch.zeros(0, 3), "scalar": torch.tensor(2.5),
            "half": torch.ones(17, 3, dtype=torch.bfloat16), "expanded": torch.ones(1).expand(5, 4)}
    saved = tt.save(os.path.join(folder, f"a{i}"), model, optimizer, **form, **more)
    value = {"model": model.state_dict(), **more, "optimizer": saving.with_names(optimizer, model)}
    torch.save(value, os.path.join(folder, f"b{i}.pt"))
    found.append([saved.nbytes, list(saved.raw), saved.blocked > 0])
print(json.dumps(found))
"""
FORMS = [({}, []), ({"state": "tight"}, ["--state", "tight"]), ({"state": "coat"}, ["--state", "coat"]),
         ({"weights": "bf16+exact16"}, ["--weights", "bf16+exact16"]),
         ({"weights": "fp16+ulp8", "threads": 1}, ["--weights", "fp16+ulp8"]),
         ({"state": "ratio8/log8", "entropy": True}, ["--state", "ratio8/log8", "--entropy"])]


def test_saved_file_is_what_pack_makes_of_torch_save(tmp_path, tersor):
    """The same planes, tensor by tensor, and unpacked the same bytes: what pack's file adds are error figures."""
    for i, (nbytes, raw, blocked) in enumerate(run(SAME, tmp_path, json.dumps([form for form, _ in FORMS]))):
        ours, theirs = tmp_path / f"a{i}", tmp_path / f"b{i}"
        tersor("pack", tmp_path / f"b{i}.pt", "-o", theirs, "-q", *FORMS[i][1], check=0)
        assert nbytes == ours.stat().st_size and raw == [] and blocked
        a, b = reader.read(ours), reader.read(theirs)
        assert a.tensors.keys() == b.tensors.keys() and a.generation == b.generation
        for name, t in b.tensors.items():
            other = a.tensors[name]
            assert (t.codec, t.kind, t.shape, t.raw) == (other.codec, other.kind, other.shape, other.raw), name
            assert (t.values is None) == (other.values is None) and other.error is None
            assert t.values is None or t.values.tobytes() == other.values.tobytes(), name
        for each in ours, theirs:
            tersor("unpack", each, "-o", f"{each}-back.pt", "--to", "pt", "-q", check=0)
            tersor("verify", each, check=0)
        assert (tmp_path / f"a{i}-back.pt").read_bytes() == (tmp_path / f"b{i}-back.pt").read_bytes()


def test_what_a_codec_cannot_hold_stays_as_it_is_and_is_named(tmp_path):
    script = """
model, optimizer = make()
with torch.no_grad():
    model[1].weight[2, 3] = float("nan")
    model[3].weight[0, 0] = 3.4e38                  # its BF16 is infinite
    optimizer.state[model[0].weight]["exp_avg_sq"][1, 1] = -1.0
    model[2].weight.fill_(70001.0)                  # integers that no BF16 holds
path = os.path.join(folder, "a")
saved = tt.save(path, model, optimizer)
value = tt.read(path)
exact = all(torch.equal(value["model"][k].nan_to_num(), t.nan_to_num()) for k, t in model.state_dict().items()
            if k in ("1.weight", "3.weight", "2.weight"))
print(json.dumps([saved.raw, exact]))
"""
    raw, exact = run(script, tmp_path)
    assert exact and sorted(raw.values()) == [
        "1 negative variance", "1 non-finite value", "1 values and 0 scales overflow the narrow format", "only integers"]


def test_states_that_cannot_be_saved_are_refused_and_leave_nothing(tmp_path):
    script = """
said = []
model = torch.nn.Linear(4, 3)
class Broken:
    def __reduce__(self):
        raise ValueError("cannot be saved")
for more in ({"x": torch.eye(3).to_sparse()}, {"x": torch.empty(3, device="meta")},
             {"x": torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)}, {"x": Broken()}):
    try:
        tt.save(os.path.join(folder, "a"), model, **more)
    except (TypeError, ValueError, NotImplementedError) as e:
        said.append(str(e))
for arguments in ({"state": "none"}, {"weights": "none"}, {"state": "gefen"}, {"step": 3},
                  {"delta": os.path.join(folder, "absent")}):
    try:
        tt.save(os.path.join(folder, "a"), model, **arguments)
    except (ValueError, RuntimeError) as e:
        said.append(str(e))
for _ in range(3):
    try:
        tt.save(os.path.join(folder, "a"), model, module=model)
    except RuntimeError as e:
        left = str(e), sum("memfd" in os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd")
                           if os.path.islink(f"/proc/self/fd/{n}"))
print(json.dumps([said, os.listdir(folder), left]))
"""
    said, files, left = run(script, tmp_path)
    assert left[0].startswith("the state to save: ") and "whole module" in left[0] and left[1] == 0
    wanted = ["sparse", "meta", "quantized", "cannot be saved", "state='none'", "weights='none'", "gefen8", "{step}",
              "absent"]
    assert len(said) == len(wanted) and files == []
    for line, word in zip(said, wanted):
        assert word in line


@pytest.mark.parametrize("named", [True, False])
def test_what_is_no_tensor_in_a_state_is_loaded_too(tmp_path, named):
    """A step that is an int, as bitsandbytes and PyTorch before 1.12 have it, began anew at 0."""
    script = f"""
def fresh():
    model = torch.nn.Linear(64, 33)
    return model, torch.optim.AdamW(model.parameters(), lr=torch.tensor(0.5), foreach=False)
model, optimizer = fresh()
optimizer.param_groups[0]["lr"].fill_(0.125)
for p in model.parameters():
    optimizer.state[p] = {{"step": 7, "exp_avg": torch.ones_like(p), "exp_avg_sq": torch.ones_like(p), "kind": "x"}}
if {named}:
    path = tt.save(folder + "/a.safetensors", model, optimizer, other=fresh()[1].state_dict()).path
else:
    path = tt.save_value(folder + "/a.safetensors", {{"m": model.state_dict(), "o": optimizer.state_dict()}}).path
model, optimizer = fresh()
assert all(name.startswith("other") for name in tt.load(path, model, optimizer))
other = torch.optim.AdamW([{{"params": [p]}} for p in model.parameters()])
try:
    tt.load(path, model, other)
except ValueError as e:
    assert "has 2 groups of parameters, expected 1" in str(e)
else:
    raise AssertionError("hyperparameters were lost")
model(torch.ones(2, 64)).sum().backward()
optimizer.step()
assert optimizer.param_groups[0]["lr"] == 0.125
print(json.dumps([[float(s["step"]), s["kind"], round(float(s["exp_avg"].mean()), 1)] for s in optimizer.state.values()]))
"""
    found = run(script, tmp_path)
    assert [f[:2] for f in found] == [[8.0, "x"]] * 2 and all(f[2] > 0.8 for f in found)


def test_states_of_8_bits_are_saved_as_they_are(tmp_path):
    """Their tables would have to be read to tell what they mean; a save refused them as damaged."""
    script = """
value = torch.load(sys.argv[3], map_location="cpu")
kept = value["optimizer"]["state"][0]
kept = kept.get("__bnb_optimizer_quant_state__", kept)
saved = tt.save_value(folder + "/a.safetensors", value)
back = tt.read(saved.path)["optimizer"]["state"][0]
back = back.get("__bnb_optimizer_quant_state__", back)
print(json.dumps([sorted(kept), sorted(back), [k for k, t in kept.items() if not torch.equal(t, back[k])]]))
"""
    kept, back, differ = run(script, tmp_path, ROOT / "tests/data/frameworks/states/bitsandbytes-adamw8bit.pt")
    assert "qmap1" in kept and back == kept and not differ


def test_names_that_no_file_holds_are_refused(tmp_path):
    """As the shards of tersor.dcp have them: a name with NUL was cut, one of a lone surrogate was no UTF-8."""
    script = """
from tersor import planes
from tersor.structure import of_tensors
said = []
for name in "a\\0b", "\\udcff", "x" * 65536:
    try:
        planes.Plan(of_tensors({name: torch.ones(3)}, {}), planes.Format())
    except RuntimeError as e:
        said.append(str(e))
print(json.dumps(said))
"""
    said = run(script, tmp_path)
    assert len(said) == 3 and all("names in UTF-8" in line for line in said)


@pytest.mark.parametrize("key, value", [("a\\0b", "x"), ("a", "x\\0y"), ("a", "\\udcff"), ("\\ud800", "x")])
def test_metadata_that_no_file_holds_is_refused(tmp_path, key, value):
    """What stood behind NUL was cut off in silence."""
    script = f"""
from tersor.structure import of_tensors
try:
    of_tensors({{"w": torch.ones(3)}}, {{"{key}": "{value}"}})
except ValueError as e:
    print(json.dumps(str(e)))
"""
    assert "expected what UTF-8 without NUL holds" in run(script, tmp_path)


def test_metadata_of_other_bytes_is_refused(tmp_path):
    """By the library, whoever calls it."""
    script = """
from tersor import planes
from tersor.structure import of_tensors
class Bytes:
    def encode(self):
        return b"k\\xff"
said = []
for key, value in ("key", Bytes()), (Bytes(), "value"):
    structure = of_tensors({"w": torch.ones(3)}, {})
    structure.metadata = {key: value}
    try:
        planes.Plan(structure, planes.Format())
    except RuntimeError as e:
        said.append(str(e))
print(json.dumps(said))
"""
    said = run(script, tmp_path)
    assert [line.startswith("the state to save: metadata k") for line in said] == [True] * 2


def test_views_that_negate_are_saved_as_what_they_are(tmp_path):
    """PyTorch marks the imaginary part of a conjugate as negated; the elements in memory are not."""
    script = """
z = torch.arange(5) * (1 + 2j)
value = {"imag": z.conj().imag, "conj": z.conj(), "both": torch._neg_view(z), "base": z}
assert value["imag"].is_neg()
found = tt.read(tt.save_value(folder + "/a", value).path)
print(json.dumps([k for k, t in value.items() if not torch.equal(t, found[k])]))
"""
    assert run(script, tmp_path) == []


def test_what_is_no_hole_in_the_pickle_of_a_job_is_refused(tmp_path):
    """A tensor as torch.save writes it has its elements in an archive, and a job has none: the call crashed."""
    script = """
import pickle
from tersor import planes
from tersor.structure import Hole, Structure
class Call:
    def __init__(self, *call):
        self.call = call
    def __reduce__(self):
        return self.call[0], self.call[1:]
class Stored:
    pass
class Pickler(pickle.Pickler):
    def persistent_id(self, value):
        return ("storage", torch.FloatStorage, "0", "cpu", 3) if isinstance(value, Stored) else None
import collections, io
none = collections.OrderedDict()
ordinary = Call(torch._utils._rebuild_tensor_v2, Stored(), 0, (3,), (1,), False, none)
typed = Call(torch._tensor._rebuild_from_type_v2, torch._utils._rebuild_tensor_v2, torch.Tensor,
             (Stored(), 0, (3,), (1,), False, none), {})
said = []
for value, named in ((ordinary, False), (ordinary, True), (Call(torch._utils._rebuild_parameter, ordinary, True, none), False),
                     (typed, False), (Hole(1), False), (Hole(1), True), (7, True)):
    written, s = io.BytesIO(), Structure()
    s.number(torch.ones(3))
    Pickler(written, 2).dump({"w": value})
    s.pickled, s.named = written.getvalue(), named
    try:
        planes.Plan(s, planes.Format())
    except RuntimeError as e:
        said.append(str(e))
print(json.dumps(said))
"""
    said = run(script, tmp_path)
    files, holes, seven = said[:4], said[4:6], said[6:]
    assert [line.partition("found ")[0] for line in said] == ["the state to save: w: "] * 7
    assert all("a tensor of a file" in line for line in files) and seven == ["the state to save: w: found 7, expected a tensor"]
    assert all("expected the number of one of its 1" in line for line in holes)


def test_more_than_4_gib_is_planned(tmp_path):
    """The memory is never touched."""
    script = """
from tersor import planes
from tersor.structure import of_value
value = {"small": torch.ones(16), "large": torch.empty(1100 << 20), "after": torch.ones(17), "end": torch.ones(18)}
plan = planes.Plan(of_value(value), planes.Format())
print(json.dumps([[plan.name(i), t.numel()] for i, t in enumerate(plan.tensors)]))
"""
    assert run(script, tmp_path) == [["small", 16], ["large", 1100 << 20], ["after", 17], ["end", 18]]


def test_the_default_device_is_not_the_host(tmp_path):
    """As after torch.set_default_device(), which PyTorch has since 2.0."""
    run("""
class Elsewhere(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if function in (torch.empty, torch.empty_strided):
            kwargs.setdefault("device", "meta")
        return function(*args, **kwargs)

model, optimizer = make()
more = {"empty": torch.zeros(0, 3), "turned": torch.arange(40.0).reshape(5, 8).t()}
with Elsewhere():
    tt.save(folder + "/a.safetensors", model, optimizer, **more)
    back = tt.read(folder + "/a.safetensors")
tt.save(folder + "/b.safetensors", model, optimizer, **more)
assert back["turned"].equal(more["turned"]) and back["model"]["1.weight"].device.type == "cpu"
print("{}")
""", tmp_path)
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()


def test_a_momentum_keeps_its_variance_behind_empty_and_tied_tensors(tmp_path):
    """The plan has more tensors than the job's memory: a variance's index may be above the number of those."""
    script = """
from tersor import planes
from tersor.structure import of_value
model, optimizer = make()
value = {"empty": [torch.zeros(0, 3)] * 9, "tied": [model[1].weight] * 9, "model": model.state_dict(),
         "optimizer": saving.with_names(optimizer, model)}
plan = planes.Plan(of_value(value), planes.Format("tight"))
names = [plan.name(i) for i in range(len(plan.tensors))]
relative = [(name, names[v]) for name, v in zip(names, plan.variance) if v >= 0]
print(json.dumps([relative, [name for name, n in zip(names, plan.nplanes) if name.endswith("exp_avg") and n > 1]]))
"""
    relative, momenta = run(script, tmp_path)
    assert momenta and relative == [[name, name + "_sq"] for name in momenta]


# ---- A training run ----------------------------------------------------------------------------------

def test_training_goes_on_while_a_file_is_written(tmp_path):
    """The file has the values of the call, whatever the job does to them afterwards."""
    script = """
model, optimizer = make()
before = {k: t.clone() for k, t in model.state_dict().items()}
future = tt.async_save(os.path.join(folder, "a"), model, optimizer)
with torch.no_grad():
    for p in model.parameters():
        p.fill_(7.0)
saved = future.result()
found = tt.read(saved.path)["model"]
print(json.dumps(max((found[k] - t).abs().max().item() for k, t in before.items())))
"""
    assert run(script, tmp_path) < 1e-3


def test_the_first_of_two_ranks_saves_and_both_hear_of_it(tmp_path):
    script = """
import torch.distributed as dist
rank = 0 if os.fork() else 1
dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=2)
model, optimizer = make()
heard = [tt.save(os.path.join(folder, "a"), model, optimizer).nbytes]
for work in lambda: tt.save(os.path.join(folder, "absent", "a"), model), lambda: tt.load(folder + "/absent", model):
    try:
        work()
    except (OSError, RuntimeError) as e:
        heard.append([type(e).__name__, "absent" in str(e)])
both = [None, None]
dist.all_gather_object(both, heard)
if rank == 0:
    print(json.dumps(both))
    os.wait()
"""
    first, second = run(script, tmp_path)
    assert first == second
    assert first == [(tmp_path / "a").stat().st_size, ["FileNotFoundError", True], ["TersorError", True]]


def test_saves_are_numbered_and_the_last_ones_kept(tmp_path):
    script = """
model = torch.nn.Linear(4, 3)
pattern = os.path.join(folder, "s-{step}.tersor")
assert tt.latest(pattern) is None
open(os.path.join(folder, "s-x.tersor"), "w").close()
for step in 9, 10, 100, 11:
    tt.async_save(pattern, model, step=step, keep_last=2).result()
print(json.dumps([sorted(os.listdir(folder)), os.path.basename(tt.latest(pattern))]))
"""
    assert run(script, tmp_path) == [["s-100.tersor", "s-11.tersor", "s-x.tersor"], "s-100.tersor"]


def test_the_newest_directories_are_kept_and_the_spared_one_by_whatever_path(tmp_path):
    script = """
os.chdir(folder)
for step in 1, 2, 9, 10:
    os.makedirs(f"packed/checkpoint-{step}/x")
pattern = "packed/checkpoint-{step}"
saving.keep_newest(pattern, 0, "")
before = len(os.listdir("packed"))
saving.keep_newest(pattern, 2, "packed/checkpoint-1")
print(json.dumps([before, sorted(os.listdir("packed"))]))
"""
    assert run(script, tmp_path) == [4, ["checkpoint-1", "checkpoint-10", "checkpoint-9"]]


def test_full_disk_is_raised_by_the_future_and_the_old_file_stays(tmp_path, monkeypatch):
    script = """
model, optimizer = make()
path = os.path.join(folder, "a")
open(path, "w").write("old")
future = tt.async_save(path, model, optimizer)
try:
    future.result()
    said = "nothing"
except RuntimeError as e:
    said = str(e)
model(torch.randint(0, 100, (8,)))
print(json.dumps([said, open(path).read() == "old", os.listdir(folder)]))
tt.save(path, model, optimizer)
"""
    monkeypatch.setenv("LD_PRELOAD", LIBRARY)
    monkeypatch.setenv("TERSOR_FAULT", "pwrite:2:ENOSPC")
    monkeypatch.setenv("TERSOR_FAULT_PATH", str(tmp_path))
    said, same, files = run(script, tmp_path)
    assert "No space left" in said and same and files == ["a"]
    run_tersor("verify", tmp_path / "a", env={"LD_PRELOAD": ""}, check=0)


KILLED = """
import random, signal, time
torch.set_num_threads(1)        # what a process that was forked may not have inherited
model, optimizer = make()
pattern, random_, last, left, loaded = os.path.join(folder, "s-{step}"), random.Random(7), 0, 0, 0
def shared():
    return {name for name in os.listdir("/dev/shm") if "tersor" in name}
before = shared()
for n in range(1, 1 + int(sys.argv[3])):
    job = os.fork()
    if job == 0:
        saving.STARTED = time.time()
        for step in range(1, 1000):
            with torch.no_grad():
                model[1].weight.fill_(1000 * n + step)
            tt.async_save(pattern, model, optimizer, step=1000 * n + step, keep_last=2)
        os._exit(1)
    time.sleep(random_.uniform(0, 0.4))
    os.kill(job, signal.SIGKILL)
    assert os.waitpid(job, 0)[1] == signal.SIGKILL
    left += any(name.endswith(".tmp") for name in os.listdir(folder))
    for step, path in saving.numbered(pattern):
        if step > last:         # what is under its name is verified, and is the state of its step
            weight = tt.read(path)["model"]["1.weight"]
            assert (weight - step).abs().max() <= step * 2**-16, path
            last, loaded = step, loaded + 1
saving.STARTED = time.time()    # as in a process that starts now
tt.save(pattern, model, optimizer, step=10**6, keep_last=2)
print(json.dumps([sorted(os.listdir(folder)), left, loaded, sorted(shared() - before)]))
"""


def test_what_kills_leave_is_complete_and_the_next_save_removes_the_rest(tmp_path):
    """SIGKILL at random moments of saves, 200 under TERSOR_LONG."""
    n = 200 if os.environ.get("TERSOR_LONG") else 8
    files, left, loaded, shared = run(KILLED, tmp_path, n, timeout=3600)
    print(f"{n} kills: {left} left a temporary file, {loaded} saves were loaded")
    assert "s-1000000" in files and len(files) <= 2 and all(name.startswith("s-") for name in files) and shared == []
    assert loaded


SAVING = START + """
model, optimizer = make()
step = 0
while True:
    step += 1
    tt.async_save(os.path.join(folder, "s-{step}"), model, optimizer, step=step, keep_last=2)
    if step == 1:
        print("begun", flush=True)
"""


def kill_after(folder, seconds):
    library = pathlib.Path(BINARY).parent.absolute() / "libtersor.so"
    env = {**os.environ, "TERSOR_LIBRARY": os.environ.get("TERSOR_LIBRARY", str(library)),
           "LD_PRELOAD": LIBRARY, "TERSOR_FAULT": "fsync:3:delay=400", "TERSOR_FAULT_PATH": str(folder)}
    job = subprocess.Popen([torchfile.TORCH, "-W", "ignore", "-c", SAVING, PACKAGE, folder], env=env,
                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    job.stdout.readline()
    time.sleep(seconds)
    job.send_signal(signal.SIGKILL)
    job.wait()


@pytest.mark.parametrize("seconds", [0.05, 0.3])
def test_what_a_kill_leaves_the_next_save_removes(tmp_path, seconds):
    """At any moment of a save: every file under a name of its own is complete."""
    kill_after(tmp_path, seconds)
    for path in tmp_path.iterdir():
        if path.name.startswith("s-"):
            run_tersor("verify", path, "-q", check=0)
    run("tt.save(os.path.join(folder, 's-{step}'), *make(), step=10**6, keep_last=2); print(0)", tmp_path)
    left = sorted(path.name for path in tmp_path.iterdir())
    assert "s-1000000" in left and len(left) <= 2 and all(name.startswith("s-") for name in left)
