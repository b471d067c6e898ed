# SPDX-License-Identifier: Apache-2.0
"""What the commands report, as dataclasses made from the JSON of the program (docs/json.txt).

The usual members are attributes, each documented there and in the manual page of its command; all of them are
``report["member"]`` and ``report.json``. What a report lacks or has as null is None, 0 or empty here.
"""
from __future__ import annotations

import dataclasses
import typing
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Type

__all__ = ["AuditReport", "DiffReport", "InspectReport", "PackReport", "ReplayReport", "Report", "TensorReport",
           "VerifyReport", "WriteReport"]


@dataclass(frozen=True)
class Members:
    """An object of a report: ``o["member"]`` is any member, and `json` has all of them."""
    json: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __getitem__(self, member: str) -> Any:
        return self.json[member]


# ---- Parts of reports -----------------------------------------------------------------------------------

@dataclass(frozen=True)
class Errors(Members):
    """Of a tensor, against what it was made from: means and largest; counts of elements."""
    nmse: Optional[float] = None
    rel: Optional[float] = None
    abs: Optional[float] = None
    cosine: Optional[float] = None
    ulp: int = 0
    nonfinite: int = 0


@dataclass(frozen=True)
class TensorReport(Members):
    """A tensor: `dtype` before packing; `codec` is "raw" or None for what is not packed."""
    name: str = ""
    dtype: str = ""
    kind: str = ""
    codec: Optional[str] = None
    shape: List[int] = field(default_factory=list)
    nbytes: int = 0
    stored_nbytes: int = 0
    error: Optional[Errors] = None


@dataclass(frozen=True)
class Sizes(Members):
    tensors: int = 0
    elements: int = 0
    nbytes: int = 0
    stored_nbytes: int = 0


@dataclass(frozen=True)
class Totals(Sizes):
    """Of all tensors; bytes per parameter count weights and states."""
    parameters: int = 0
    bytes_per_parameter: Optional[float] = None


@dataclass(frozen=True)
class Kind(Sizes):
    """The tensors of one kind in one codec."""
    kind: str = ""
    codec: Optional[str] = None


@dataclass(frozen=True)
class KeptRaw(Members):
    """How many tensors stayed as they are, and why."""
    why: str = ""
    tensors: int = 0
    nbytes: int = 0


@dataclass(frozen=True)
class FileReport(Members):
    """A file that was verified (`file`), or one of a directory (`path`): what is wrong with it, if anything."""
    file: str = ""
    path: str = ""
    kind: Optional[str] = None
    faults: int = 0
    fault: Optional[str] = None
    reason: Optional[str] = None
    nbytes: int = 0
    stored_nbytes: int = 0
    tensors: List[TensorReport] = field(default_factory=list)


@dataclass(frozen=True)
class Form(Members):
    """What a form of states costs; `command` packs with the recommended one."""
    form: str = ""
    momentum: Optional[str] = None
    variance: Optional[str] = None
    update_nmse: Optional[float] = None
    grade: Optional[str] = None
    bytes_per_parameter: Optional[float] = None
    command: str = ""


@dataclass(frozen=True)
class AuditedCheckpoint(Members):
    file: str = ""
    forms: List[Form] = field(default_factory=list)
    recommended: Optional[Form] = None


@dataclass(frozen=True)
class Worst(Members):
    """The largest figure of a replay, and where it was."""
    value: Optional[float] = None
    step: int = 0
    tensor: Optional[str] = None


@dataclass(frozen=True)
class Finding(Members):
    level: str = ""
    text: str = ""


@dataclass(frozen=True)
class StateReport(Members):
    """A state of a replay: `worst` by figure, such as "weight-nmse"."""
    name: str = ""
    bytes_per_parameter: Optional[float] = None
    worst: Dict[str, Worst] = field(default_factory=dict)
    findings: List[Finding] = field(default_factory=list)


# ---- Reports --------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Report(Members):
    """A report. `passed` is False if what was compared differs, or if a bound or a baseline failed: nothing is
    written then, and `message` says why. `warnings` are the program's."""
    passed: bool = True
    warnings: List[str] = field(default_factory=list)
    message: str = ""


@dataclass(frozen=True)
class WriteReport(Report):
    """Of `unpack`, `convert` and `apply`."""
    output: Optional[str] = None
    nbytes: int = 0
    tensors: List[TensorReport] = field(default_factory=list)
    files: List[FileReport] = field(default_factory=list)


@dataclass(frozen=True)
class PackReport(WriteReport):
    """Of `pack`: `packed_nbytes` is the size of the output, `nbytes` that of the input's data."""
    packed_nbytes: int = 0
    parameters: int = 0
    totals: Totals = Totals()
    by_kind: List[Kind] = field(default_factory=list)
    kept_raw: List[KeptRaw] = field(default_factory=list)


@dataclass(frozen=True)
class InspectReport(Report):
    """Of `inspect`: `kind` says what it is ("packed", "safetensors", "recording", ...)."""
    kind: Optional[str] = None
    metadata: Dict[str, str] = field(default_factory=dict)
    totals: Totals = Totals()
    by_kind: List[Kind] = field(default_factory=list)
    tensors: List[TensorReport] = field(default_factory=list)
    files: List[FileReport] = field(default_factory=list)


@dataclass(frozen=True)
class VerifyReport(Report):
    """Of `verify`: the files that were given, or those of a directory."""
    files: List[FileReport] = field(default_factory=list)


@dataclass(frozen=True)
class DiffReport(Report):
    """Of `diff`: how many tensors differ, and each with its figures; of directories each file."""
    differing: int = 0
    exceeding: int = 0
    tensors: List[TensorReport] = field(default_factory=list)
    files: List[FileReport] = field(default_factory=list)


@dataclass(frozen=True)
class AuditReport(Report):
    """Of `audit`: what each form of states does to each checkpoint."""
    checkpoints: List[AuditedCheckpoint] = field(default_factory=list)


@dataclass(frozen=True)
class ReplayReport(Report):
    """Of `replay`: how far each state is from FP32 after the last step."""
    output: Optional[str] = None
    order: Optional[str] = None
    states: List[StateReport] = field(default_factory=list)
    findings: List[Finding] = field(default_factory=list)
    worst: Dict[str, Worst] = field(default_factory=dict)


REPORTS: Dict[str, Type[Report]] = {
    "pack": PackReport, "unpack": WriteReport, "convert": WriteReport, "apply": WriteReport, "inspect": InspectReport,
    "verify": VerifyReport, "diff": DiffReport, "audit": AuditReport, "replay": ReplayReport}


def take(kind: Any, members: Mapping[str, Any], **more: Any) -> Any:
    """A dataclass from the members that it has fields for."""
    hints = typing.get_type_hints(kind)
    found = {name: made(hint, members[name]) for name, hint in hints.items()
             if members.get(name) is not None and name not in more}
    return kind(**{**found, **more, "json": members})


def made(hint: Any, value: Any) -> Any:
    """A value of a report as the type that a field has."""
    if dataclasses.is_dataclass(hint):
        return take(hint, value)
    inner = typing.get_args(hint)
    if type(None) in inner:
        return made(inner[0], value)
    if isinstance(value, list):
        return [made(inner[0], each) for each in value]
    return {key: made(inner[1], each) for key, each in value.items()} if isinstance(value, dict) else value
