# SPDX-License-Identifier: Apache-2.0
"""The commands of the program as functions.

Each runs the program that this package carries, in a process of its own, and returns its JSON report as a
dataclass (`tersor.reports`); docs/json.txt lists the members. Options are keywords, as the manual page of the
command has them: ``max_error={"nmse": 1e-4}`` is ``--max-error nmse=1e-4``, ``strict=True`` is ``--strict``,
and a list repeats an option.
"""
from __future__ import annotations

import json
import os
import subprocess
from typing import Any, Mapping, Sequence, Union

from tersor import program
from tersor.reports import (REPORTS, AuditReport, DiffReport, InspectReport, PackReport, ReplayReport, Report,
                            VerifyReport, WriteReport, take)

__all__ = ["TersorError", "apply", "audit", "convert", "diff", "inspect", "pack", "replay", "run", "store",
           "unpack", "verify"]

Path = Union[str, "os.PathLike[str]"]
Paths = Union[Path, Sequence[Path]]
DIFFERS = 1     # the status of a comparison, a bound or a baseline that failed


class TersorError(RuntimeError):
    """A command that failed: `status` is that of the program, 2 to 4, and the text says file, found and expected."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status

    def __reduce__(self) -> Any:    # ranks send it to each other
        return type(self), (self.status, str(self))


def _words(name: str, value: Any) -> list[str]:
    option = "--" + name.rstrip("_").replace("_", "-")
    if value is None or value is False:
        return []
    if value is True:
        return [option]
    if isinstance(value, Mapping):
        return [f"{option}={key}={each}" for key, each in value.items()]
    if isinstance(value, (list, tuple)):
        return [word for each in value for word in _words(name, each)]
    return [f"{option}={os.fspath(value) if isinstance(value, os.PathLike) else value}"]


def run(command: str, *operands: Path, **options: Any) -> Any:
    """Run a command and return its report.

    Raises
    ------
    TersorError
        If it failed; a comparison that finds a difference does not.
    """
    words = [word for name, value in options.items() for word in _words(name, value)]
    done = subprocess.run([program(), command, "--json=-", *words, "--", *[os.fspath(path) for path in operands]],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    said = [line[len("tersor: "):] for line in done.stderr.splitlines() if line.startswith("tersor: ")]
    warnings = [line[len("warning: "):] for line in said if line.startswith("warning: ")]
    message = "\n".join(line for line in said if not line.startswith(("warning: ", "note: ")))
    if done.returncode not in (0, DIFFERS):
        raise TersorError(done.returncode, message or f"tersor {command}: status {done.returncode}\n{done.stderr}")
    members = json.loads(done.stdout) if done.stdout else {}
    return take(REPORTS.get(command, Report), members, passed=done.returncode == 0, warnings=warnings, message=message)


def _all(paths: Paths) -> list[Path]:
    return [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)


def pack(source: Paths, output: Path | None = None, *, state: str | None = None, auto: float | None = None,
         max_error: Mapping[str, float] | None = None, entropy: bool = False, delta: Path | None = None,
         strict: bool = False, force: bool = False, **options: Any) -> PackReport:
    """Pack a checkpoint: BF16 weights with corrections, 8-bit states.

    Parameters
    ----------
    source : path or list of paths
        A checkpoint: a file, a directory, or the model's file and the optimizer's.
    output : path, optional
        Default: ``source.packed``, or ``source.packed.safetensors``; the report's ``output`` has it.
    state : str, optional
        The form of momenta and variances: ``"flash"`` (default), ``"tight"``, ``"ratio8/sqrt8"`` and others.
    auto : float, optional
        Choose the smallest codecs whose update NMSE is at most this.
    max_error : dict, optional
        Bounds that fail, such as ``{"update-nmse": 1e-3}``: the report has not `passed`, and nothing is written.
    entropy : bool
        Code the planes without loss.
    delta : path, optional
        A packed file to store the difference from.
    strict, force : bool
        Refuse what is warned of; replace an output that exists.
    """
    return run("pack", *_all(source), output=output, state=state, auto=auto, max_error=max_error, entropy=entropy,
               delta=delta, strict=strict, force=force, **options)


def unpack(packed: Path, output: Path | None = None, *, to: str | None = None, force: bool = False,
           **options: Any) -> WriteReport:
    """Restore the FP32 checkpoint from a packed file or directory; `to`: "safetensors", "pt", "dcp", "npz"."""
    return run("unpack", packed, output=output, to=to, force=force, **options)


def inspect(path: Paths, **options: Any) -> InspectReport:
    """What a checkpoint or recording contains, from its headers: ``report.tensors``."""
    return run("inspect", *_all(path), **options)


def verify(packed: Paths, *, against: Paths | None = None, max_error: Mapping[str, float] | None = None,
           **options: Any) -> VerifyReport:
    """Check structure, hashes and values; `against`: the original, to measure errors anew."""
    return run("verify", *_all(packed), against=None if against is None else _all(against), max_error=max_error,
               **options)


def diff(a: Path, b: Path, *, max_error: Mapping[str, float] | None = None, **options: Any) -> DiffReport:
    """Compare two checkpoints, packed or not; `passed` if they are equal, or within the bounds."""
    return run("diff", a, b, max_error=max_error, **options)


def convert(source: Paths, output: Path, *, to: str | None = None, force: bool = False, **options: Any) -> WriteReport:
    """Write a checkpoint in another file format, its elements unchanged."""
    return run("convert", *_all(source), output=output, to=to, force=force, **options)


def apply(update: Path, model: Path, output: Path | None = None, **options: Any) -> WriteReport:
    """Put a weight update onto the model that it was made for: into `output`, or in place with ``in_place=True``."""
    return run("apply", update, model, output=output, **options)


def audit(checkpoint: Paths, *, state: str | None = None, max_error: Mapping[str, float] | None = None,
          **options: Any) -> AuditReport:
    """What each codec would do to a checkpoint; ``report.checkpoints[0].recommended`` is the form to use."""
    return run("audit", *_all(checkpoint), state=state, max_error=max_error, **options)


def replay(checkpoint: Paths, recording: Path, output: Path | None = None, *, state: str | None = None,
           compare: str | None = "fp32", max_error: Mapping[str, float] | None = None, **options: Any) -> ReplayReport:
    """Repeat optimizer steps from recorded gradients, in `state`, and compare with FP32."""
    return run("replay", *_all(checkpoint), recording, output=output, state=state, compare=compare,
               max_error=max_error, **options)


def store(command: str, directory: Path, *operands: Any, **options: Any) -> Report:
    """A command of a store: ``store("add", "run.store", "checkpoint-100", tier="1e-2")``, ``store("ls", ...)``."""
    return run("store", command, directory, *operands, **options)
