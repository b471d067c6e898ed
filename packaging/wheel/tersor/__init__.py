# SPDX-License-Identifier: Apache-2.0
"""tersor packs the training state of neural networks on disk.

The program is a binary, which this package carries: `tersor`, or `python -m tersor`. Its commands are functions
here: `tersor.pack("checkpoint-30")` returns the report that `tersor pack --json` prints. Modules:

    tersor.torch               packed checkpoints into a PyTorch model and optimizer, and back
    tersor.record_gradients    the gradients of a PyTorch run, for `tersor replay`
    tersor.record_trainer      the same for Hugging Face's Trainer

They need PyTorch; this module needs nothing.
"""
import importlib.metadata
import os
import pathlib
import shutil
from typing import Optional

__all__ = ["Report", "TersorError", "apply", "audit", "convert", "diff", "inspect", "pack", "program", "replay",
           "run", "unpack", "verify"]

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


from tersor.commands import (Report, TersorError, apply, audit, convert, diff, inspect, pack,  # noqa: E402
                             replay, run, unpack, verify)
