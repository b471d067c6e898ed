"""tersor.torch.load into an optimizer, and the values of read (packaging/wheel/tersor/torch.py)."""
import pytest

from test_saving import run
from test_torch_module import binary_for_examples  # noqa: F401: a fixture that is used for all

RESUME = """
import copy

def fresh(kind):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 40), torch.nn.Tanh(), torch.nn.Linear(40, 6))
    return model, kind(model.parameters())

def step(model, optimizer, seed):
    x = torch.randn(9, 6, generator=torch.Generator().manual_seed(seed))
    def closure():
        optimizer.zero_grad()
        loss = (model(x) - x).square().mean()
        loss.backward()
        return loss
    return optimizer.step(closure).item()

def resumed(kind):
    '''Losses after load(), and after load_state_dict() of what read() gives; and what load() returns.'''
    model, optimizer = fresh(kind)
    for seed in range(4):
        step(model, optimizer, seed)
    path = tt.save(folder + "/a", model, optimizer).path
    value = tt.read(path)
    for group in value["optimizer"]["param_groups"]:
        group.pop("param_names")
    theirs, ours = fresh(kind), fresh(kind)
    theirs[0].load_state_dict(value["model"])
    theirs[1].load_state_dict(value["optimizer"])
    left = tt.load(path, *ours)
    return [[step(*each, seed) for seed in (5, 6, 7)] for each in (theirs, ours)] + [left]
"""


def test_tensors_in_lists_of_a_state_are_loaded(tmp_path):
    """LBFGS keeps its directions in lists; the next step met objects of a checkpoint."""
    theirs, ours, left = run(RESUME + """
print(json.dumps(resumed(lambda p: torch.optim.LBFGS(p, lr=0.5, max_iter=3, history_size=4))))
""", tmp_path)
    assert ours == theirs and left == []


def test_a_state_in_dicts_and_what_is_of_no_parameter_is_loaded(tmp_path):
    """As HeavyBall and SOAP have it, and MADGRAD and EmoNavi: dicts were left out."""
    theirs, ours, left = run(RESUME + """
class Nested(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {"lr": 1e-2})

    def step(self, closure):
        loss = closure()
        k = self.state.setdefault("k", torch.zeros(()))
        k += 1
        ema = self.state.setdefault("ema", {"long": 0.0})
        ema["long"] += loss.item()
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p].setdefault(0, {"m": torch.zeros_like(p), "gg": [torch.eye(len(p)), None],
                                                     "begun": {1, 2}, "pair": (torch.zeros(3), {"x": torch.ones(2)})})
                state["m"].lerp_(p.grad, 0.1)
                state["gg"][0].mul_(0.9)
                state["pair"][1]["x"].mul_(1.1)
                assert state["begun"] == {1, 2}
                p.data -= group["lr"] * (state["m"] * state["gg"][0][0, 0] * state["pair"][1]["x"].sum() / k
                                         + ema["long"] / 100)
        return loss
print(json.dumps(resumed(Nested)))
""", tmp_path)
    assert ours == theirs and left == []


def test_what_a_class_adds_to_its_state_dict_is_loaded(tmp_path):
    """As HeavyBall and StableSPAM do; another class leaves it."""
    script = """
class Counting(torch.optim.SGD):
    total = mean = 0

    def state_dict(self):
        return {**super().state_dict(), "total": self.total, "more": {"mean": self.mean}}

    def load_state_dict(self, state):
        super().load_state_dict({k: state[k] for k in ("state", "param_groups")})
        self.total, self.mean = state["total"], state["more"]["mean"]
model = torch.nn.Linear(4, 3)
optimizer = Counting(model.parameters(), lr=0.5, momentum=0.9)
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
optimizer.total, optimizer.mean = 7, torch.tensor(2.5)
path = tt.save(folder + "/a", model, optimizer).path
loaded, plain = Counting(model.parameters(), lr=1.0), torch.optim.SGD(model.parameters(), lr=1.0)
left = [tt.load(path, model, each) for each in (loaded, plain)]
print(json.dumps([left, loaded.total, loaded.mean.item(), loaded.param_groups[0]["lr"],
                  all(torch.equal(each.state[p]["momentum_buffer"], optimizer.state[p]["momentum_buffer"])
                      for each in (loaded, plain) for p in model.parameters())]))
"""
    assert run(script, tmp_path) == [[[], ["optimizer.more.mean"]], 7, 2.5, 0.5, True]


def test_an_object_in_a_state_is_refused_before_anything_is_changed(tmp_path):
    script = """
import collections
model, optimizer = make()
optimizer.state[model[1].bias]["queue"] = collections.deque([1])
path = tt.save(folder + "/a", model, optimizer).path
other, its = make()
with torch.no_grad():
    other[1].weight.fill_(3)
try:
    tt.load(path, other, its)
except ValueError as e:
    print(json.dumps([str(e), bool((other[1].weight == 3).all()), "queue" in its.state[other[1].bias]]))
"""
    assert run(script, tmp_path) == [
        "1.bias: state queue: found an object of collections.deque, expected tensors and plain values", True, False]


def test_a_class_that_adds_to_its_state_dict_keeps_types_and_what_is_shared(tmp_path):
    """load_state_dict() casts states to the type of their parameter, and copies groups."""
    script = """
class More(torch.optim.AdamW):
    def state_dict(self):
        return {**super().state_dict(), "total": 7}
model = torch.nn.Linear(4, 3, dtype=torch.bfloat16)
optimizer = More(model.parameters(), lr=torch.tensor(0.25), foreach=False)
for p in model.parameters():
    optimizer.state[p] = {"step": torch.tensor(3.0), "exp_avg": torch.randn(p.shape), "exp_avg_sq": torch.rand(p.shape)}
path = tt.save(folder + "/a", model, optimizer).path
lr = torch.tensor(0.5)
loaded = More(model.parameters(), lr=lr, foreach=False)
tt.load(path, model, loaded)
print(json.dumps([[loaded.state[p][k].equal(optimizer.state[p][k]) for p in model.parameters() for k in optimizer.state[p]],
                  loaded.param_groups[0]["lr"] is lr, lr.item()]))
"""
    equal, shared, lr = run(script, tmp_path)
    assert all(equal) and len(equal) == 6 and shared and lr == 0.25


def test_an_object_in_a_state_of_no_parameter_is_refused(tmp_path):
    script = """
import collections
model, optimizer = make()
optimizer.state["shared"] = {"queue": collections.deque([1])}
try:
    tt.load(tt.save(folder + "/a", model, optimizer).path, *make())
except ValueError as e:
    print(json.dumps(str(e)))
"""
    assert run(script, tmp_path) == ("the optimizer: state shared.queue: found an object of collections.deque, "
                                     "expected tensors and plain values")


@pytest.mark.parametrize("fault", ["groups", "optimizers", "missing", "shape"])
def test_what_does_not_fit_is_refused_before_anything_is_changed(tmp_path, fault):
    script = f"""
fault = {fault!r}
model, optimizer = make()
value = {{"model": model.state_dict(), "a": optimizer.state_dict()}}
if fault == "optimizers":
    value["b"] = make()[1].state_dict()
path = tt.save_value(folder + "/a", value).path
model, optimizer = make()
if fault == "groups":
    optimizer = torch.optim.AdamW([{{"params": [p]}} for p in model.parameters()])
if fault == "missing":
    model.add_module("more", torch.nn.Linear(2, 2))
if fault == "shape":
    model[3] = torch.nn.Linear(300, 7, bias=False)
with torch.no_grad():
    for p in model.parameters():
        p.fill_(3)
before = {{p: dict(s) for p, s in optimizer.state.items()}}
try:
    tt.load(path, model, optimizer)
except (KeyError, ValueError) as e:
    said = str(e)
print(json.dumps([said, all(bool((p == 3).all()) for p in model.parameters()),
                  all(s[k] is v for p, state in before.items() for s in [optimizer.state[p]] for k, v in state.items())]))
"""
    said, *same = run(script, tmp_path)
    assert {"groups": "has 6 groups", "optimizers": "several optimizers", "missing": "more.weight",
            "shape": "3.weight: found shape [1100, 300], expected [7, 300]"}[fault] in said
    assert same == [True, True]


def test_hyperparameters_that_are_tensors_are_loaded(tmp_path):
    """Into the tensors that are there: a scheduler or a graph may have the same one; and those in a tuple."""
    script = """
def fresh(lr, beta):
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.AdamW([{"params": [model.weight]}, {"params": [model.bias]}], lr=torch.tensor(lr),
                                  foreach=False)
    for group in optimizer.param_groups:
        group["betas"] = (torch.tensor(beta), 0.99)
    return model, optimizer
model, optimizer = fresh(0.25, 0.5)
path = tt.save(folder + "/a", model, optimizer).path
optimizer.param_groups[1]["lr"] = torch.tensor(0.125)
apart = tt.save(folder + "/b", model, optimizer).path
found = []
for each in path, apart:
    model, optimizer = fresh(1.0, 0.75)
    groups = optimizer.param_groups
    shared, beta = groups[0]["lr"], groups[0]["betas"][0]
    assert groups[1]["lr"] is shared
    left = tt.load(each, model, optimizer)
    found.append([left, shared is groups[0]["lr"], shared is groups[1]["lr"], beta is groups[0]["betas"][0],
                  [[g["lr"].item(), g["betas"][0].item(), g["betas"][1]] for g in groups]])
print(json.dumps(found))
"""
    assert run(script, tmp_path) == [[[], True, True, True, [[0.25, 0.5, 0.99]] * 2],
                                     [[], True, False, True, [[0.25, 0.5, 0.99], [0.125, 0.5, 0.99]]]]


def test_a_learning_rate_of_numpy_is_loaded(tmp_path):
    """It was taken for an object, and the optimizer kept its own."""
    script = """
import numpy
model, optimizer = make()
optimizer.param_groups[0]["lr"] = numpy.float64(0.125) * numpy.cos(0.0)
path = tt.save(folder + "/a", model, optimizer).path
model, optimizer = make()
tt.load(path, model, optimizer)
print(json.dumps(optimizer.param_groups[0]["lr"]))
"""
    assert run(script, tmp_path) == 0.125


def test_states_without_a_step_load_and_so_does_a_wrapper(tmp_path):
    """As a file of tensors by name has them, and one whose groups do not say which parameters they have."""
    script = """
class Wrapper:
    def __init__(self, inner):
        self.state, self.param_groups = inner.state, inner.param_groups
    def state_dict(self):
        return {"inner": {}}
torch.manual_seed(0)
found = []
model = torch.nn.Linear(4, 3)
moments = {f"{name}.{field}": torch.full_like(p, 0.5) for name, p in model.named_parameters()
           for field in ("exp_avg", "exp_avg_sq")}
flat = tt.save_value(folder + "/a", {**model.state_dict(), **moments}).path
optimizer = torch.optim.AdamW(model.parameters())
found.append(tt.load(flat, model, optimizer))
numbers = {0: {"step": 7, "kind": "x"}}
bare = tt.save_value(folder + "/b", {"model": model.state_dict(), "optimizer": {
    "state": numbers, "param_groups": [{"lr": 0.5}]}}).path
wrapper = Wrapper(torch.optim.AdamW(model.parameters()))
found.append(tt.load(bare, model, wrapper))
tt.save(folder + "/c", model, wrapper)
print(json.dumps([found, optimizer.state[model.bias]["exp_avg"].tolist(), wrapper.param_groups[0]["lr"],
                  wrapper.state[model.weight]]))
"""
    assert run(script, tmp_path) == [[[], []], [0.5] * 3, 0.5, {"step": 7, "kind": "x"}]


def test_states_of_another_optimizer_are_told(tmp_path):
    """As load_state_dict() of Adam, which raised KeyError: 'step'."""
    script = """
model, optimizer = make()
for state in optimizer.state.values():
    del state["step"]
path = tt.save(folder + "/a", model, optimizer).path
model, _ = make()
try:
    tt.load(path, model, torch.optim.AdamW(model.parameters()))
except ValueError as e:
    print(json.dumps(str(e)))
"""
    assert run(script, tmp_path) == "AdamW needs 'step' in its states: found those of another optimizer"


def test_numbers_go_where_the_names_of_their_tensors_say(tmp_path):
    """An optimizer that has its parameters in another order, and a step that all share."""
    script = """
model, optimizer = make()
step = optimizer.state[model[0].weight]["step"]
for i, p in enumerate(model.parameters()):
    optimizer.state[p].update(step=step, which=[i, torch.full((2,), float(i))])
path = tt.save_value(folder + "/a", {"model": model.state_dict(), "optimizer": optimizer.state_dict()}).path
model, _ = make()
optimizer = torch.optim.AdamW(reversed(list(model.parameters())))
assert tt.load(path, model, optimizer) == []
print(json.dumps([[optimizer.state[p]["which"][0], optimizer.state[p]["which"][1].tolist(),
                   optimizer.state[p]["exp_avg"].shape == p.shape, optimizer.state[p]["step"].item()]
                  for p in model.parameters()]))
"""
    assert run(script, tmp_path) == [[i, [float(i)] * 2, True, 5.0] for i in range(6)]


@pytest.mark.parametrize("protocol", [2, 4])
def test_plain_values_are_read_as_they_were(tmp_path, protocol):
    """Sets, bytes, complex numbers and those of NumPy were objects that stand for something."""
    script = f"""
import collections, numpy
value = {{"double": numpy.float64(0.1), "half": numpy.float16(2.5), "int": numpy.int64(-7), "bool": numpy.bool_(True),
         "big": numpy.array(3, ">i4")[()], "complex64": numpy.complex64(1 + 2j), "set": {{1, 2}}, "none": set(), "frozen": frozenset({{3}}), "complex": 3 + 4j, "bytes": b"xy\\xff\\0", "empty": b"",
         "array": bytearray(b"q\\xff"), "room": bytearray(), "range": range(1, 9, 2), "slice": slice(1, None, 2),
         "size": torch.Size([2, 3]), "device": torch.device("cuda:1"), "dtype": torch.float16,
         "counter": collections.Counter({{4: 2}}), "tuple": (1, (2,)), "large": 1 << 80, "ordered":
         collections.OrderedDict(a=1)}}
torch.save(value, folder + "/a.pt", pickle_protocol={protocol})
found = [tt.read(path) for path in (folder + "/a.pt", tt.save_value(folder + "/b", {{**value, "w": torch.ones(3)}}).path)]
found[1].pop("w")
print(json.dumps([[k for k, v in value.items() if type(each[k]) is not type(v) or each[k] != v] for each in found]))
"""
    assert run(script, tmp_path) == [[], []]


def test_what_is_no_number_of_numpy_is_an_object(tmp_path):
    """Whichever way it is damaged, the rest is read."""
    script = """
import numpy
class Damaged:
    def __init__(self, *args):
        self.args = args
    def __reduce__(self):
        return numpy.core.multiarray.scalar if numpy.__version__ < "2" else numpy._core.multiarray.scalar, self.args
value = [Damaged(numpy.dtype("f4"), b""), Damaged(numpy.dtype("f4"), "text"), Damaged(3, b"abcd")]
found = tt.read(tt.save_value(folder + "/a", {"values": value, "w": torch.ones(3)}).path)
print(json.dumps([isinstance(each, tt.Opaque) for each in found["values"]] + found["w"].tolist()))
"""
    assert run(script, tmp_path) == [True] * 3 + [1] * 3


def test_a_device_of_another_build_is_an_object(tmp_path):
    script = """
class Device:
    def __reduce__(self):
        return torch.device, ("elsewhere:1",)
found = tt.read(tt.save_value(folder + "/a", {"device": Device(), "w": torch.ones(3)}).path)["device"]
print(json.dumps([isinstance(found, tt.Opaque), found.args]))
"""
    assert run(script, tmp_path) == [True, ["elsewhere:1"]]
