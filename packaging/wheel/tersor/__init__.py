# SPDX-License-Identifier: Apache-2.0
"""tersor packs the training state of neural networks on disk and in training jobs.

The program is a binary, which this package carries: `tersor`, or `python -m tersor`. Its commands are functions
here: `tersor.pack("checkpoint-30")` returns what `tersor pack --json` prints, as a dataclass. `tersor.open` reads
single tensors as numpy arrays. Modules, which need PyTorch:

    tersor.torch               save, async_save, load and read, for a model and an optimizer
    tersor.dcp                 the same for torch.distributed.checkpoint
    tersor.record              the gradients of a run, for `tersor replay`
    tersor.signatures          hashes of gradients, weights and states, for `tersor bisect`
    tersor.transformers, tersor.lightning, tersor.accelerate    packed checkpoints of these frameworks

This module needs nothing, `tersor.open` numpy, and those modules both.
"""
import importlib.metadata
import os
import pathlib
import shutil
from typing import Any, Optional

__all__ = ["TersorError", "apply", "audit", "convert", "diff", "inspect", "open", "pack", "program", "replay",
           "run", "store", "unpack", "verify"]

_AROUND = pathlib.Path(__file__).resolve().parent.parent


def _distribution() -> Optional[importlib.metadata.Distribution]:
    """What is installed beside this package, whatever other versions sys.path leads to; None in a source tree."""
    return next(iter(importlib.metadata.distributions(name="tersor", path=[str(_AROUND)])), None)


_INSTALLED = _distribution()
__version__ = _INSTALLED.version if _INSTALLED else "0"


def program() -> str:
    """The path of the program: that of $TERSOR, the one installed with this package, or `tersor` in the PATH."""
    if os.environ.get("TERSOR"):
        return os.environ["TERSOR"]
    # `pip install --target` moves the binary to bin, and RECORD does not know it.
    recorded = [_AROUND / path for path in (_INSTALLED.files if _INSTALLED else None) or ()
                if path.name == "tersor" and path.parent.name in ("bin", "scripts")]
    places = [_AROUND / "bin" / "tersor", *recorded]
    for path in places:
        if path.is_file():
            if not os.access(path, os.X_OK):
                raise PermissionError(f"{path} may not be executed: chmod +x, or install the wheel with pip")
            return str(path.resolve())
    found = None if _INSTALLED else shutil.which("tersor")
    if not found:
        raise FileNotFoundError(f"the program tersor is not where it was installed: {places[-1]}" if _INSTALLED
                                else "tersor is not in the PATH, and $TERSOR does not name it")
    return found


from tersor.commands import (TersorError, apply, audit, convert, diff, inspect, pack,  # noqa: E402
                             replay, run, store, unpack, verify)


def open(path: Any, parts: bool = False) -> Any:
    """Open a checkpoint to read single tensors as numpy arrays: see `tersor.checkpoint.Checkpoint`."""
    from tersor.checkpoint import Checkpoint
    return Checkpoint(path, parts)
