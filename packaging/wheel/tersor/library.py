# SPDX-License-Identifier: Apache-2.0
"""libtersor by ctypes, and opening checkpoints and reading their tensors with it (include/tersor/checkpoint.h).

The library is the one that $TERSOR_LIBRARY names, that of the installed package, or the one of the installation
that has the program, which is the one that $TERSOR names, that of the package, or `tersor` in the PATH.
"""
from __future__ import annotations

import ctypes
import ctypes.util
import json
import os
from typing import Any, Dict, Iterator, List, Optional, Tuple

__all__ = ["File", "Tensor", "call", "find_library", "library", "open_all"]


I, U, Q, Z, B = ctypes.c_int, ctypes.c_uint, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_bool
P, S, REST = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char * 4096


def structure(**fields: Any) -> Any:
    """A structure of the library: of options the members up to the last that is set here, and room for the rest."""
    return type("Structure", (ctypes.Structure,), {"_fields_": list(fields.items())})


Error = structure(code=I, msg=ctypes.c_char * 1024, hint=I)
OpenOptions = structure(size=Z, dtype=I, follow=B, as_stored=B, params=P, nparams=Z, opaque=I, numbered=B,
                        parts=B, rest=REST)
Description = structure(name=S, dtype=I, rank=U, shape=ctypes.POINTER(Q), numel=Q, kind=I, nplanes=U, weight=S,
                        codec=P)    # struct tsr_tensor
Entry = structure(key=S, value=S)   # struct tsr_meta
Coding = structure(codec=P, scale=I, group=ctypes.c_uint32, kind=I, narrow=I, seed=Q, stream=Q, first=Q,
                   row=ctypes.c_uint32, eps=ctypes.c_float, share=ctypes.c_uint32, codebook=P)
PackOptions = structure(size=Z, weight=Coding, momentum=Coding, variance=Coding, rest=REST)
RecodeOptions = structure(size=Z, coded=I, max_shard_nbytes=Q, weights_out=S, open=P, force=B, dry_run=B, delta=S,
                          rest=REST)
Run = structure(threads=U, rest=P * 8)
JobState = structure(name=S, pickle=S, nbytes=Z, facts=P, ntensors=Z, meta=ctypes.POINTER(Entry), nmeta=Z, named=B)
SavingTensor = structure(name=Q, number=Q, numel=Q, variance=ctypes.c_int64, plane=Q * 4, room=Q, coded_bound=Q,
                         nplanes=U, encoded=B)
Raw = structure(tensor=Z, why=ctypes.c_char * 80)   # struct tsr_saving_raw
Stored = structure(data=Q, plane=Q * 4, coded=Q * 4)    # struct tsr_saved

# What each function returns and takes, by letters; of `e`, a status, the last argument is the error.
LETTERS = {"p": P, "s": S, "u": U, "q": Q, "z": Z, "b": B, "e": I, "-": None, "D": ctypes.POINTER(Description),
           "M": ctypes.POINTER(Entry), "O": OpenOptions, "P": PackOptions, "R": RecodeOptions, "C": Coding}
FUNCTIONS = {
    "open_defaults": "O", "dtype_name": "su", "kind_name": "su", "checkpoint_open": "epupp",
    "checkpoint_close": "-p", "checkpoint_ntensors": "zp", "checkpoint_tensor": "Dpz", "checkpoint_nmeta": "zp",
    "checkpoint_meta": "Mpz", "checkpoint_nnotes": "zp", "checkpoint_note": "spz", "checkpoint_tree": "eppp",
    "checkpoint_read_f32": "eppqzp", "checkpoint_read_stored": "eppuqzp", "directory_index": "es",
    "dtype_find": "us", "sign": "epzpp", "sign_pieces": "-pzpp", "device_sign": "epppzqp", "gpu_built": "b",
    "xxh3": "qpz",
    "pack_defaults": "P", "recode_defaults": "R", "coding_default": "Cp", "codec_find": "ps", "state_form": "bspp",
    "gpu_open": "eup", "saving_plan": "eppp", "saving_free": "-p", "saving_ntensors": "zp", "saving_tensors": "-pp",
    "saving_place": "-pppzp", "saving_settle": "zpppzp", "saving_encode": "epppp", "saving_coding_scratch": "qppzp",
    "saving_code_on": "epppzppppp",
    "saving_encode_on": "epppzpppp", "saving_write": "eppsppp", "unpacking_free": "-p", "unpacking_source": "pp",
    "unpacking_nbytes": "qp"}


def find_library() -> str:
    """The path of the shared library."""
    if os.environ.get("TERSOR_LIBRARY"):
        return os.environ["TERSOR_LIBRARY"]
    from tersor import program
    folder = os.path.dirname(os.path.realpath(program()))
    for place in (os.path.dirname(os.path.abspath(__file__)), folder, os.path.join(folder, "..", "lib")):
        for name in "libtersor.so.1", "libtersor.so":
            if os.path.exists(os.path.join(place, name)):
                return os.path.join(place, name)
    found = ctypes.util.find_library("tersor")
    if not found:
        raise FileNotFoundError("libtersor.so.1 is not installed where the program tersor is, and "
                                "$TERSOR_LIBRARY does not name it")
    return found


_library: Optional[ctypes.CDLL] = None


def library() -> Any:
    """The shared library, with the types of its functions."""
    global _library
    if _library is None:
        found = ctypes.CDLL(find_library())
        if not hasattr(found, "tsr_saving_place"):
            raise ImportError(f"{found._name} is older than this module")
        for name, (result, *arguments) in FUNCTIONS.items():
            function = getattr(found, f"tsr_{name}")
            function.restype = LETTERS[result]
            function.argtypes = [LETTERS[each] for each in arguments] + [ctypes.c_void_p] * (result == "e")
        _library = found
    return _library


def call(name: str, *arguments: Any) -> None:
    """Call a function of the library that returns a status; raises its message."""
    err = Error()
    if getattr(library(), name)(*arguments, ctypes.byref(err)):
        raise RuntimeError(err.msg.decode(errors="replace"))


class File:
    """An open checkpoint of the library; closed with the last of its tensors.

    Parameters
    ----------
    path : path
        Whatever ``tersor inspect`` opens as one checkpoint.
    parts : bool
        Accept one rank's parts of tensors.
    """

    def __init__(self, path: Any, parts: bool = False):
        options = library().tsr_open_defaults()
        options.parts = parts
        self.path = path
        self.handle = ctypes.c_void_p()
        call("tsr_checkpoint_open", (ctypes.c_char_p * 1)(os.fsencode(path)), 1, ctypes.byref(options),
             ctypes.byref(self.handle))

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            library().tsr_checkpoint_close(self.handle)

    def tensors(self, kind: Any = None) -> Iterator["Tensor"]:
        """Its tensors, as `Tensor` or another class made from the same arguments."""
        for i in range(library().tsr_checkpoint_ntensors(self.handle)):
            yield (kind or Tensor)(self, library().tsr_checkpoint_tensor(self.handle, i))

    def metadata(self) -> Dict[str, str]:
        """Its metadata, without the entry that describes a packed file."""
        entries = [library().tsr_checkpoint_meta(self.handle, i).contents
                   for i in range(library().tsr_checkpoint_nmeta(self.handle))]
        return {e.key.decode(errors="surrogateescape"): e.value.decode(errors="surrogateescape") for e in entries}

    def tree(self) -> bytes:
        """What was saved around the tensors, as a pickle; b"" if nothing was."""
        found, size = ctypes.c_void_p(), ctypes.c_size_t()
        call("tsr_checkpoint_tree", self.handle, ctypes.byref(found), ctypes.byref(size))
        return ctypes.string_at(found, size.value) if found else b""


class Tensor:
    """A tensor of a checkpoint, decoded on demand.

    Attributes
    ----------
    name, kind : str
        `kind` is "weight", "momentum", "variance" or "other".
    shape : list of int
    stored : str
        Its element type before packing, as safetensors calls it: "F32", "BF16", ...
    packed : bool
        Whether it is stored in the planes of a codec.
    """

    def __init__(self, file: File, description: Any):
        t = description.contents
        self.file, self.description = file, description
        self.name: str = t.name.decode(errors="surrogateescape")
        self.kind: str = library().tsr_kind_name(t.kind).decode()
        self.shape: List[int] = list(t.shape[:t.rank])
        self.packed = bool(t.codec)
        self.stored: str = library().tsr_dtype_name(t.dtype).decode()

    def read(self, first: int, count: int, size: int, address: int) -> None:
        """Consecutive elements, row-major: FP32 if it is packed, else as they are stored, in `size` bytes each."""
        if self.packed:
            call("tsr_checkpoint_read_f32", self.file.handle, self.description, first, count, address)
        else:
            call("tsr_checkpoint_read_stored", self.file.handle, self.description, 0, first * size, count * size,
                 address)


def files_of(path: str) -> List[str]:
    """The files of a checkpoint that the library opens."""
    index = os.path.join(path, "tersor.json")
    if not os.path.isfile(index):
        return [path]
    with open(index) as f:
        names = [e["files"][-1]["path"] for e in json.load(f)["entries"] if e["as"] == "packed"]
    for name in names:
        if os.path.isabs(name) or ".." in name.split("/"):
            raise ValueError(f"{index}: {name!r} is not the name of a file in the directory")
    return [os.path.join(path, name) for name in names]


def open_all(path: Any, kind: Any = None, parts: bool = False) -> Tuple[List[File], Dict[str, Any]]:
    """The files of a checkpoint, which may be a packed directory, and all their tensors by name."""
    files: List[File] = [File(name, parts) for name in files_of(os.fspath(path))]
    tensors: Dict[str, Any] = {}
    for file in files:
        for t in file.tensors(kind):
            if t.name in tensors:
                raise ValueError(f"{file.path}: tensor {t.name} is in another file too")
            tensors[t.name] = t
    return files, tensors
