# SPDX-License-Identifier: Apache-2.0
"""Planes of a job's tensors: what becomes of each tensor, and encoding them where they are.

libtersor has all formulas and writes the file (include/tersor/saving.h, device.h).
"""
from __future__ import annotations

import ctypes
import dataclasses
import os
import time
from typing import Any, Dict, Iterable, List, Mapping, Optional, Set, Tuple

import numpy
import torch

from tersor.library import (Coding, Entry, JobState, PackOptions, Raw, Run, SavingTensor, Stored, call, library)
from tersor.structure import Structure


@dataclasses.dataclass(frozen=True)
class Saved:
    """What a save wrote.

    Attributes
    ----------
    path : str
        The packed file, or the directory of a sharded state.
    nbytes : int
        Bytes of the file, or, of a sharded state, of what this rank wrote; 0 on ranks for which `async_save`
        had nothing to do.
    blocked : float
        Seconds for which the call held up training.
    raw : dict of str to str
        Tensors that stayed FP32 although they are weights or states, and why.
    notes : list of str
        What the file cannot hold, or holds otherwise.
    """

    path: str
    nbytes: int
    blocked: float
    raw: Mapping[str, str]
    notes: List[str]


# ---- The plan, and where planes are -------------------------------------------------------------

@dataclasses.dataclass(frozen=True)
class Format:
    """How states are packed: the arguments of `save` that say so."""
    state: str = "flash"
    weights: str = "bf16+ulp8"
    entropy: bool = False
    delta: Any = None      # a path
    threads: int = 0

    @staticmethod
    def coding(name: str, argument: str) -> Coding:
        codec = library().tsr_codec_find(name.encode())
        if not codec:
            raise ValueError(f"{argument}={name!r}: no such codec; `tersor codecs` lists them")
        return library().tsr_coding_default(codec)

    def options(self) -> PackOptions:
        lib, options = library(), library().tsr_pack_defaults()
        options.weight = self.coding(self.weights, "weights")
        if "/" in self.state:
            options.momentum, options.variance = (self.coding(name, "state") for name in self.state.split("/", 1))
        elif not lib.tsr_state_form(self.state.encode(), ctypes.byref(options.momentum),
                                    ctypes.byref(options.variance)):
            raise ValueError(f"state={self.state!r}: no such form of states; `tersor pack --help` lists them")
        return options


class Plan:
    """What becomes of each tensor of a state, as lists with a value for each; freed with it.

    Attributes
    ----------
    tensors : list of Tensor
        The job's, row-major.
    encoded : list of bool
        By a codec; False: it stays as it is.
    room, bound : list of int
        Bytes of the planes, each from a multiple of 16 on; the most bytes of the planes coded on a GPU, or 0.
    nplanes, variance : list of int
        How many planes; the number of the variance that it is relative to, or -1.
    data, planes, coded : arrays
        Columns of `stored`, which is what the library takes: addresses of elements and planes, bytes of coded ones.
    raw : dict of str to str
        Tensors that no codec holds, and why.
    kept : list
        What must live until the file is written.
    """

    def __init__(self, structure: Structure, form: Format):
        self.handle, self.kept, self.raw = ctypes.c_void_p(), [], {}
        self.lib, self.form = library(), form
        entries = [Entry(key.encode(), value.encode()) for key, value in structure.metadata.items()]
        state = JobState(b"the state to save", structure.pickled, len(structure.pickled),
                         structure.facts.buffer_info()[0], len(structure.tensors), (Entry * len(entries))(*entries),
                         len(entries), structure.named)
        call("tsr_saving_plan", ctypes.byref(state), ctypes.byref(form.options()), ctypes.byref(self.handle))
        planned = numpy.zeros(self.lib.tsr_saving_ntensors(self.handle), SavingTensor)
        self.lib.tsr_saving_tensors(self.handle, planned.ctypes.data)
        # The device is named, as torch.set_default_device() may have set another.
        empty = torch.empty(0, device="cpu")
        self.tensors = [structure.tensors[number].contiguous() if numel else empty
                        for number, numel in zip(planned["number"].tolist(), planned["numel"].tolist())]
        self.encoded, self.room, self.bound, self.nplanes, self.variance = (
            planned[each].tolist() for each in ("encoded", "room", "coded_bound", "nplanes", "variance"))
        self.addresses: Any = planned["name"]
        self.stored = numpy.zeros(len(planned) + 1, Stored)
        self.data, self.planes, self.coded = (self.stored[each] for each in ("data", "plane", "coded"))

    def __del__(self) -> None:
        if self.handle:
            self.free()

    def name(self, i: int) -> str:
        return ctypes.string_at(int(self.addresses[i])).decode(errors="replace")

    def place(self, indices: List[int], address: int) -> None:
        """Let the planes of tensors be one behind the other from an address on."""
        self.lib.tsr_saving_place(self.handle, self.stored.ctypes.data, numbers(indices), len(indices), address)

    def take(self, indices: List[int], tensors: List[torch.Tensor]) -> None:
        """Let tensors have their elements in others."""
        self.data[indices] = [t.data_ptr() for t in tensors]

    def bounds(self, indices: List[int]) -> Dict[int, int]:
        """The most bytes of the planes of tensors coded on a GPU; others go to the host as they are."""
        if not self.form.entropy or self.form.delta is not None:
            return {}
        return {i: self.bound[i] for i in indices if self.bound[i]}

    def settle(self, indices: List[int], found: int) -> None:
        """Copy the elements of those that no codec holds to the host now; `found` is the address of what was found."""
        raw = (Raw * len(indices))()
        for each in raw[:self.lib.tsr_saving_settle(self.handle, found, numbers(indices), len(indices), raw)]:
            self.raw[self.name(each.tensor)] = each.why.decode()
            self.kept.append(self.tensors[each.tensor].to("cpu", copy=True))
            self.take([each.tensor], self.kept[-1:])
            self.planes[each.tensor] = 0

    def write(self, path: str) -> Tuple[int, List[str]]:
        """Write the file: its bytes, and notes."""
        options, unpacking = self.lib.tsr_recode_defaults(), ctypes.c_void_p()
        options.coded, options.force = (2 if self.form.entropy or self.form.delta else 0), True
        options.delta = os.fsencode(self.form.delta) if self.form.delta else None
        most = (os.cpu_count() or 2) // 2   # one writes; coding needs more beside it than hashing
        run = Run(threads=self.form.threads or max(1, most if options.coded else min(most, 3)))
        try:
            call("tsr_saving_write", self.handle, self.stored.ctypes.data, os.fsencode(path), ctypes.byref(options),
                 ctypes.byref(run), ctypes.byref(unpacking))
            source = self.lib.tsr_unpacking_source(unpacking)
            notes = [self.lib.tsr_checkpoint_note(source, i).decode(errors="replace")
                     for i in range(self.lib.tsr_checkpoint_nnotes(source))]
            return self.lib.tsr_unpacking_nbytes(unpacking), notes
        finally:
            self.lib.tsr_unpacking_free(unpacking)

    def free(self) -> None:
        self.lib.tsr_saving_free(self.handle)
        self.handle, self.addresses = ctypes.c_void_p(), ()
        self.kept.clear()


# ---- Making planes ------------------------------------------------------------------------------

SEGMENT = 256 << 20     # bytes of planes that are copied to the host together


class Memory:
    """Host memory for planes, which is kept for the next save."""

    def __init__(self) -> None:
        self.idle: List[torch.Tensor] = []

    def take(self, nbytes: int, pinned: bool) -> torch.Tensor:
        fits = [m for m in self.idle if m.numel() >= nbytes and m.is_pinned() == pinned]
        if not fits:
            return torch.empty(nbytes, dtype=torch.uint8, device="cpu", pin_memory=pinned)
        found = min(fits, key=torch.Tensor.numel)
        self.idle = [m for m in self.idle if m is not found]
        return found

    def give(self, memory: List[torch.Tensor]) -> None:
        """Keep what a save used, and no more: a smaller state lets go of the rest."""
        self.idle = memory


HOST = Memory()


@dataclasses.dataclass
class Segment:
    """Tensors whose planes are in one run of memory, one behind the other."""
    tensors: List[int]
    nbytes: int
    bound: int = 0      # of what they take coded; 0: they go to the host as they are
    device: Optional[torch.Tensor] = None

    @property
    def room(self) -> int:
        return max(self.nbytes, self.bound)


def segments_of(plan: Plan, indices: Iterable[int], bounds: Mapping[int, int] = {}) -> List[Segment]:
    segments: List[Segment] = []
    for i in indices:
        if not segments or segments[-1].nbytes + plan.room[i] > SEGMENT:
            segments.append(Segment([], 0))
        segments[-1].tensors.append(i)
        segments[-1].nbytes += plan.room[i]
        segments[-1].bound += bounds.get(i, 0)
    return segments


def encode_on_cpu(plan: Plan, indices: List[int]) -> List[torch.Tensor]:
    memory = []
    for segment in segments_of(plan, indices):
        memory.append(HOST.take(segment.nbytes, pinned=False))
        plan.place(segment.tensors, memory[-1].data_ptr())
    plan.take(indices, [plan.tensors[i] for i in indices])
    run, found = Run(threads=plan.form.threads), numpy.zeros((len(plan.tensors), 9), "u8")
    call("tsr_saving_encode", plan.handle, plan.stored.ctypes.data, found.ctypes.data, ctypes.byref(run))
    plan.data[indices] = 0
    plan.settle([i for i in indices if plan.encoded[i]], found.ctypes.data)
    return memory


class Gpu:
    """A GPU of the job: libtersor's handle, and a stream for copies."""
    known: Dict[int, "Gpu"] = {}

    def __init__(self, index: int):
        self.handle = ctypes.c_void_p()
        call("tsr_gpu_open", index, ctypes.byref(self.handle))
        self.copies = torch.cuda.Stream(index)

    @classmethod
    def of(cls, device: torch.device) -> "Gpu":
        index = torch.cuda.current_device() if device.index is None else device.index
        if index not in cls.known:
            cls.known[index] = cls(index)
        return cls.known[index]

    def fill(self, plan: Plan, segment: Segment, found: torch.Tensor, stream: torch.cuda.Stream) -> None:
        """Append the planes of a segment to the current stream."""
        base = segment.device.data_ptr()
        plan.place(segment.tensors, base)
        for i in segment.tensors:
            if not plan.encoded[i] and plan.room[i]:
                elements, start = bytes_of(plan.tensors[i]), int(plan.planes[i, 0]) - base
                segment.device[start:start + elements.numel()].copy_(elements)
        which = [i for i in segment.tensors if plan.encoded[i]]
        relative = [i for i in which if plan.variance[i] >= 0]
        read = which + [plan.variance[i] for i in relative]
        kept = [plan.tensors[i].float() for i in read]      # freed in the order of the stream
        plan.take(read, kept)
        scratch = torch.empty(max((plan.tensors[i].numel() for i in relative), default=1), dtype=torch.float32,
                              device=found.device)
        call("tsr_saving_encode_on", plan.handle, plan.stored.ctypes.data, numbers(which), len(which),
             self.handle, stream.cuda_stream, found.data_ptr(), scratch.data_ptr())


def bytes_of(t: torch.Tensor) -> torch.Tensor:
    return (torch.view_as_real(t) if t.is_complex() else t).reshape(-1).view(torch.uint8)


def numbers(indices: List[int]) -> Any:
    return (ctypes.c_size_t * len(indices))(*indices)


@dataclasses.dataclass
class Block:
    """Pinned memory for coded planes, filled from its beginning on."""
    memory: torch.Tensor
    used: int = 0


class Transfer:
    """The way of planes from a GPU to the host: coded there if wanted, into pinned memory."""

    def __init__(self, plan: Plan, gpu: Gpu, segments: List[Segment], device: torch.device):
        self.plan, self.gpu, self.memory = plan, gpu, []
        coded = [segment for segment in segments if segment.bound]
        self.rest = sum(segment.bound for segment in coded)     # the most that is still to come
        self.blocks: List[Block] = []
        scratch = [plan.lib.tsr_saving_coding_scratch(plan.handle, numbers(s.tensors), len(s.tensors), gpu.handle)
                   for s in coded]
        self.scratch: Any = torch.empty(max(scratch, default=0), dtype=torch.uint8, device=device)
        most = 4 * max((len(s.tensors) for s in coded), default=0)
        self.ends: Any = torch.empty(most, dtype=torch.int64, device=device)

    def take(self, segment: Segment, ready: Any) -> Any:
        """Append the copy of a segment to the stream of copies; returns the event after it."""
        with torch.cuda.stream(self.gpu.copies):
            self.gpu.copies.wait_event(ready)
            self.take_coded(segment) if segment.bound else self.take_plain(segment)
            return self.gpu.copies.record_event()

    def take_plain(self, segment: Segment) -> None:
        host = HOST.take(segment.nbytes, pinned=True)
        self.memory.append(host)
        planes = self.plan.planes[segment.tensors]      # 0: of one that stays as it is
        self.plan.planes[segment.tensors] = numpy.where(planes, planes - segment.device.data_ptr() + host.data_ptr(), 0)
        host[:segment.nbytes].copy_(segment.device[:segment.nbytes], non_blocking=True)

    def take_coded(self, segment: Segment) -> None:
        """Planes that are coded in the place of the plain ones; waits for how much that is."""
        plan = self.plan
        which = [i for i in segment.tensors if plan.planes[i, 0]]   # not those that stay as they are
        planes = [(i, k) for i in which for k in range(plan.nplanes[i])]
        call("tsr_saving_code_on", plan.handle, plan.stored.ctypes.data, numbers(which), len(which), self.gpu.handle,
             self.gpu.copies.cuda_stream, self.scratch.data_ptr(), segment.device.data_ptr(), self.ends.data_ptr())
        begin, first, to, host = 0, 0, 0, None    # of a plane; of those that are copied together, and where to
        for (i, k), end in zip(planes, self.ends[:len(planes)].tolist()):
            room = -(-(end - begin) // 16) * 16     # as tsr_device_code() has them
            block = next((b for b in self.blocks if b.used + room <= b.memory.numel()), None) or self.add_block(room)
            if host is not block.memory or block.used != to + begin - first:
                self.copy(host, to, segment.device[first:begin])
                first, to, host = begin, block.used, block.memory
            plan.planes[i, k], plan.coded[i, k] = block.memory.data_ptr() + block.used, end - begin
            block.used += room
            begin += room
        self.copy(host, to, segment.device[first:begin])
        self.rest -= segment.bound

    def add_block(self, room: int) -> Block:
        self.blocks.append(Block(HOST.take(max(room, min(SEGMENT, self.rest)), pinned=True)))
        self.memory.append(self.blocks[-1].memory)
        return self.blocks[-1]

    @staticmethod
    def copy(host: Optional[torch.Tensor], at: int, part: torch.Tensor) -> None:
        if host is not None:
            host[at:at + part.numel()].copy_(part, non_blocking=True)


def encode_on_gpu(plan: Plan, indices: List[int], device: torch.device) -> Any:
    """Planes of tensors on a GPU; returns what has to be called for them to be on the host.

    With room for all planes beside what PyTorch holds they wait there, and training goes on at once; else
    two segments are there at a time, and training waits for the bus.  They are coded when they leave.
    """
    with torch.cuda.device(device):
        gpu, bounds = Gpu.of(device), plan.bounds(indices)
        segments = segments_of(plan, bounds, bounds) + segments_of(plan, [i for i in indices if i not in bounds])
        found = torch.zeros(len(plan.tensors), 9, dtype=torch.int64, device=device)
        transfer = Transfer(plan, gpu, segments, device)
        total = sum(segment.room for segment in segments)
        waits = torch.cuda.mem_get_info(device)[0] > total * 1.1 + (1 << 30)
        stream = torch.cuda.current_stream()
        ring: List[Any] = [None, None]
        for k, segment in enumerate(segments):
            if not waits and ring[k % 2]:
                ring[k % 2].synchronize()
                segments[k - 2].device = None
            segment.device = torch.empty(segment.room, dtype=torch.uint8, device=device)
            gpu.fill(plan, segment, found, stream)
            if not waits:
                ring[k % 2] = transfer.take(segment, stream.record_event())
        encoded = stream.record_event()
        counts = found.cpu().contiguous()       # waits for the kernels
        plan.data[indices] = 0
        plan.settle([i for i in indices if plan.encoded[i]], counts.data_ptr())

    def finish() -> List[torch.Tensor]:
        with torch.cuda.device(device):
            if not waits:   # before the job may use the memory again
                gpu.copies.synchronize()
            for segment in segments:
                if segment.device is not None:
                    if waits:
                        transfer.take(segment, encoded).synchronize()
                    segment.device = None
            gpu.copies.synchronize()
            transfer.scratch = transfer.ends = None
        return transfer.memory
    return finish


class Staged:
    """A state whose planes are made: training may change it.  `write` writes the file."""

    def __init__(self, structure: Structure, form: Format):
        begun = time.perf_counter()
        self.memory: List[torch.Tensor] = []
        self.finish: List[Any] = []
        self.plan = Plan(structure, form)
        try:
            self.encode()
        except BaseException:
            self.drop()
            raise
        self.left_out: List[int] = []
        self.plan.tensors.clear()   # the job may free them
        self.blocked = time.perf_counter() - begun

    def encode(self) -> None:
        places: Dict[torch.device, List[int]] = {}
        for i, t in enumerate(self.plan.tensors):
            places.setdefault(t.device, []).append(i)
        for device, indices in places.items():
            if device.type not in ("cpu", "cuda"):
                raise TypeError(f"{self.plan.name(indices[0])} is on {device}: expected the CPU or a CUDA "
                                "device")
            if device.type == "cuda":
                self.finish.append(encode_on_gpu(self.plan, indices, device))
            else:
                self.memory += encode_on_cpu(self.plan, indices)

    @property
    def nbytes(self) -> Dict[str, int]:
        """Bytes that each tensor's planes take, by name; before the file is written."""
        return {self.plan.name(i): room for i, room in enumerate(self.plan.room)}

    def keep(self, names: Set[str]) -> None:
        """Write these tensors only, and the variances that momenta among them are relative to."""
        plan = self.plan
        kept = {i for i in range(len(plan.room)) if plan.name(i) in names}
        kept |= {plan.variance[i] for i in kept}
        self.left_out = [i for i in range(len(plan.room)) if i not in kept]

    def drop(self) -> None:
        """Write nothing."""
        try:
            for finish in self.finish:
                self.memory += finish()
        finally:
            self.plan.free()
            HOST.give(self.memory)

    def write(self, path: str) -> Saved:
        try:
            for finish in self.finish:
                self.memory += finish()
            self.plan.data[self.left_out], self.plan.planes[self.left_out] = 0, 0
            nbytes, notes = self.plan.write(path)
        finally:
            raw = dict(self.plan.raw)
            self.plan.free()
            HOST.give(self.memory)
        return Saved(path, nbytes, self.blocked, raw, notes)
