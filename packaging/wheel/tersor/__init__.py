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

__all__ = ["Report", "TersorError", "apply", "audit", "convert", "diff", "inspect", "pack", "program", "replay",
           "run", "unpack", "verify"]

_AROUND = pathlib.Path(__file__).resolve().parent.parent


def _distribution() -> importlib.metadata.Distribution:
    """What is installed beside this package, whatever other versions sys.path leads to."""
    for found in importlib.metadata.distributions(name="tersor", path=[str(_AROUND)]):
        return found
    raise ImportError(f"{_AROUND} has the package tersor, but not its metadata: install the wheel")


__version__ = _distribution().version


def program() -> str:
    """The path of the binary that was installed with this package."""
    # `pip install --target` moves the binary to bin, and RECORD does not know it.
    recorded = [_AROUND / path for path in _distribution().files or ()
                if path.name == "tersor" and path.parent.name in ("bin", "scripts")]
    places = [_AROUND / "bin" / "tersor", *recorded]
    for path in places:
        if path.is_file():
            if not os.access(path, os.X_OK):
                raise PermissionError(f"{path} may not be executed: chmod +x, or install the wheel with pip")
            return str(path.resolve())
    raise FileNotFoundError(f"the program tersor is not where it was installed: {places[-1]}")


from tersor.commands import (Report, TersorError, apply, audit, convert, diff, inspect, pack,  # noqa: E402
                             replay, run, unpack, verify)
