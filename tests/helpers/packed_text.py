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
    return unfold(root, header, header_of(path.parent / root["weights"]) if "weights" in root else {})


def unfold(root, header, weights={}):
    """The text with an object for each tensor; of the headers of the file and of its weights file."""
    own, others = ({name: Shape(entry) for name, entry in of.items() if name != "__metadata__"}
                   for of in (header, weights))
    entries = reader.expand(root, own | others, own)
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
    if error is None:
        return b"\xff" * 19
    of = {name: float("inf") if value is None else value for name, value in error.items()}
    return b"".join(fold_figure(1 - of[name] if name == "cosine" and of[name] < 2 else of[name], n)
                    for name, n in reader.FIGURES.items())


def fold_figure(value, n=3):
    """The upper n bytes of a binary64, rounded to nearest, ties to even."""
    bits, = struct.unpack("<Q", struct.pack("<d", value))
    shift = 64 - 8 * n
    return ((bits + (1 << shift - 1) - 1 + (bits >> shift & 1)) >> shift).to_bytes(n, "little")
