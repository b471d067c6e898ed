# SPDX-License-Identifier: Apache-2.0
"""What the commands report, as dataclasses made from the JSON of the program (docs/json.txt)."""
from __future__ import annotations

import dataclasses
from typing import Any, Dict, List, Mapping, Optional, Type

__all__ = ["AuditReport", "DiffReport", "InspectReport", "PackReport", "ReplayReport", "Report", "TensorReport",
           "VerifyReport", "WriteReport"]


@dataclasses.dataclass(frozen=True)
class TensorReport:
    """A tensor of a report.

    Attributes
    ----------
    name, dtype, kind, codec : str
        `dtype` before packing; `codec` is "raw" or None for what is not packed.
    shape : list of int
    nbytes, stored_nbytes : int
        Bytes before packing, and in the file.
    error : dict of str to float
        NMSE and other figures (``tersor inspect --help``); None where nothing was measured.
    json : dict
        All members.
    """

    name: str = ""
    dtype: str = ""
    kind: str = ""
    codec: Optional[str] = None
    shape: List[int] = dataclasses.field(default_factory=list)
    nbytes: int = 0
    stored_nbytes: int = 0
    error: Optional[Dict[str, float]] = None
    json: Mapping[str, Any] = dataclasses.field(default_factory=dict, repr=False)


@dataclasses.dataclass(frozen=True)
class Report:
    """A report: ``report["member"]`` is a member of the JSON, and the usual ones are attributes.

    Attributes
    ----------
    passed : bool
        False if what was compared differs, or if a bound or a baseline failed; nothing is written then.
    warnings : list of str
        What the program warned of.
    message : str
        Why it did not pass.
    json : dict
        All members, by the schema that ``json["schema"]`` names.
    """

    passed: bool = True
    warnings: List[str] = dataclasses.field(default_factory=list)
    message: str = ""
    json: Mapping[str, Any] = dataclasses.field(default_factory=dict, repr=False)

    def __getitem__(self, member: str) -> Any:
        return self.json[member]


@dataclasses.dataclass(frozen=True)
class WriteReport(Report):
    """Of `unpack`, `convert` and `apply`: the output, its bytes, and its tensors."""

    output: Optional[str] = None
    nbytes: int = 0
    tensors: List[TensorReport] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class PackReport(WriteReport):
    """Of `pack`: `packed_nbytes` is the size of the output, `nbytes` that of the input's data."""

    packed_nbytes: int = 0
    parameters: int = 0
    kept_raw: List[Dict[str, Any]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class InspectReport(Report):
    """Of `inspect`: `kind` says what it is ("packed", "safetensors", "recording", ...)."""

    kind: Optional[str] = None
    metadata: Dict[str, str] = dataclasses.field(default_factory=dict)
    totals: Dict[str, Any] = dataclasses.field(default_factory=dict)
    tensors: List[TensorReport] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class VerifyReport(Report):
    """Of `verify`: an object per file, with its `faults`."""

    files: List[Dict[str, Any]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class DiffReport(Report):
    """Of `diff`: how many tensors differ, and each with its figures."""

    differing: int = 0
    exceeding: int = 0
    tensors: List[TensorReport] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class AuditReport(Report):
    """Of `audit`: per checkpoint what each codec does, and ``["recommended"]``."""

    checkpoints: List[Dict[str, Any]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class ReplayReport(Report):
    """Of `replay`: how far each state is from FP32 after the last step."""

    output: Optional[str] = None
    order: Optional[str] = None
    steps: Optional[int] = None
    states: List[Dict[str, Any]] = dataclasses.field(default_factory=list)
    findings: List[Dict[str, Any]] = dataclasses.field(default_factory=list)


REPORTS: Dict[str, Type[Report]] = {
    "pack": PackReport, "unpack": WriteReport, "convert": WriteReport, "apply": WriteReport, "inspect": InspectReport,
    "verify": VerifyReport, "diff": DiffReport, "audit": AuditReport, "replay": ReplayReport}


def take(kind: Any, members: Mapping[str, Any], **more: Any) -> Any:
    """A dataclass from the members that it has fields for."""
    values = {field.name: members[field.name] for field in dataclasses.fields(kind)
              if members.get(field.name) is not None and field.name not in more}
    if isinstance(values.get("tensors"), list):
        values["tensors"] = [take(TensorReport, t, json=t) for t in values["tensors"]]
    return kind(**{**values, **more})
