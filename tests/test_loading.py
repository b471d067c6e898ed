"""tersor.torch.load into an optimizer, and the values of read (packaging/wheel/tersor/torch.py)."""
import pytest

from test_saving import run
from test_torch_module import binary_for_examples  # noqa: F401: a fixture that is used for all


@pytest.mark.parametrize("protocol", [2, 4])
def test_plain_values_are_read_as_they_were(tmp_path, protocol):
    """Sets, bytes and complex numbers were objects that stand for something."""
    script = f"""
import collections
value = {{"set": {{1, 2}}, "none": set(), "frozen": frozenset({{3}}), "complex": 3 + 4j, "bytes": b"xy\\xff\\0", "empty": b"",
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
