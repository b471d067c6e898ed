"""The `tersor` text of a packed file as tests change it: one object per tensor, with all that holds for it."""
import base64
import json
import struct

import reader


class Shape:
    def __init__(self, entry):
        self.shape = entry["shape"]


def header_of(path):
    content = path.read_bytes()
    return json.loads(content[8:8 + struct.unpack("<Q", content[:8])[0]])


def read(path):
    """The text of a file, unfolded."""
    header = header_of(path)
    root = json.loads(header["__metadata__"]["tersor"])
    return unfold(root, header | (header_of(path.parent / root["weights"]) if "weights" in root else {}))


def unfold(root, header):
    """The text with an object for each tensor; `header` has the arrays of the file, and of its weights file."""
    arrays = {name: Shape(entry) for name, entry in header.items() if name != "__metadata__"}
    entries = reader.expand(root, arrays)
    root = {key: value for key, value in root.items() if key not in ("codings", "xxh3", "error")}
    return root | {"tensors": entries}


def fold(root):
    """The text that unfold() would take apart so, with all names and shapes; one that has codings as it is."""
    if not isinstance(root, dict) or "codings" in root or "tensors" not in root:
        return root
    codings, tensors, hashes, figures = [], [], [], []
    for entry in root["tensors"]:
        coding = {key: entry[key] for key in reader.CODING
                  if key in entry and (key, entry[key]) != ("dtype", "F32")}
        if coding not in codings:
            codings.append(coding)
        tensors.append({"coding": codings.index(coding)} | {
            key: value for key, value in entry.items() if key not in (*reader.CODING, "xxh3", "error")})
        hashes += [struct.pack("<Q", int(digits, 16)) for digits in entry["xxh3"]]
        if entry.get("codec") != "raw":
            figures.append(fold_figures(entry.get("error")))
    lists = {"codings": codings, "xxh3": base64.b64encode(b"".join(hashes)).decode()}
    if set(figures) - {fold_figures(None)}:
        lists["error"] = base64.b64encode(b"".join(figures)).decode()
    return {key: value for key, value in root.items() if key != "tensors"} | lists | {"tensors": tensors}


def fold_figures(error):
    return b"\xff" * 15 if error is None else b"".join(
        fold_figure(float("inf") if value is None else value) for value in error.values())


def fold_figure(value):
    """The upper 24 bits of a binary64, rounded to nearest, ties to even."""
    bits, = struct.unpack("<Q", struct.pack("<d", value))
    return ((bits + (1 << 39) - 1 + (bits >> 40 & 1)) >> 40).to_bytes(3, "little")
