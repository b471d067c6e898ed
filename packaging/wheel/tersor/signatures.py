# SPDX-License-Identifier: Apache-2.0
"""Record signatures of a PyTorch run for `tersor bisect`: hashes and figures of gradients, weights and states.

    recorder = SignatureRecorder("run", optimizer, model.named_parameters())
    for batch in batches:
        ...                           # any number of backward(), then clipping, if any
        recorder.loss = loss          # optional
        optimizer.step()              # tensors are hashed on their GPU, others by threads while training goes on
    recorder.close()

Every rank that makes a recorder writes a file of its own, 32 bytes for a tensor and step. What is not on a GPU of
CUDA, or with a libtersor without GPUs, is copied to host memory, at most three times. What goes wrong is raised by
step() or close(), and ends the recording. docs/replay.md, "Signatures", describes the files.
"""
import ctypes
import json
import math
import operator
import os
import struct

import torch

from tersor import ranks
from tersor.library import Run, call, library
from tersor.planes import Gpu
from tersor.record import Recorder, check_step, hook, run_of

DTYPES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.float64: "F64",
          torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8",
          torch.bool: "BOOL"}
ALIGN = 64      # of tensors in a buffer
PIECE = 32768   # TSR_SIGN_PIECE


PLAIN = torch.Tensor, torch.nn.Parameter


def local(t):
    """This rank's part of a tensor, or the number that stands for one."""
    if type(t) in PLAIN:
        return t
    if isinstance(t, torch.Tensor):
        return (t.to_local() if hasattr(t, "to_local") else t).detach()
    return torch.tensor(float(t), device="cpu")


class Table:
    """What libtersor is told of the tensors on a device: rows of struct tsr_to_sign."""

    def __init__(self, tensors, dtypes):
        self.row, self.first, rows = {}, 0, []     # by number; pieces
        for row, (i, t) in enumerate(tensors.items()):
            nbytes = t.numel() * t.element_size()
            rows.append([0, nbytes, self.first, i << 32 | dtypes[i]])
            self.row[i] = row
            self.first += -(-nbytes // PIECE)
        self.rows = torch.tensor(rows, dtype=torch.int64, device="cpu")

    def with_data(self, data):
        rows, column = self.rows.clone(), [0] * len(self.rows)
        for i, address in data.items():
            column[self.row[i]] = address
        rows[:, 0] = torch.tensor(column, dtype=torch.int64, device="cpu")
        return rows


class Memory:
    """Buffers of one size on the host, as many as are in use at once: two or three, as few steps are in flight."""

    def __init__(self, nbytes, pinned):
        self.nbytes, self.pinned, self.free = nbytes, pinned, []

    def take(self):
        # The device is named, as torch.set_default_device() may have set another.
        return self.free.pop() if self.free else torch.empty(self.nbytes, dtype=torch.uint8, device="cpu",
                                                             pin_memory=self.pinned)

    def give(self, buffer):
        self.free.append(buffer)


class Copies:
    """Tensors that the CPU signs: copies in host memory, from wherever they are."""

    def __init__(self, tensors, dtypes, threads):
        self.table, self.run, self.place, total = Table(tensors, dtypes), Run(threads=threads), {}, 0
        for i, t in tensors.items():
            self.place[i] = total
            total += max(1, -(-t.numel() * t.element_size() // ALIGN)) * ALIGN
        self.buffers, self.memory = Memory(total, False), None

    def begin(self):
        if self.memory is None:     # else the last step was not taken
            self.memory = self.buffers.take()
        self.present = set()

    def take(self, tensors):
        into = []
        for i, t in tensors.items():
            end = self.place[i] + t.numel() * t.element_size()
            into.append(self.memory[self.place[i]:end].view(t.dtype).view(t.shape))
        if into and hasattr(torch, "_foreach_copy_"):
            torch._foreach_copy_(into, list(tensors.values()))
        else:
            for a, t in zip(into, tensors.values()):
                a.copy_(t)
        self.present.update(tensors)

    def send(self):
        """What signs the tensors of this step, to an address, in a thread."""
        memory, self.memory = self.memory, None
        table = self.table.with_data({i: memory.data_ptr() + self.place[i] for i in self.present})

        def sign(to):
            try:
                call("tsr_sign", table.data_ptr(), len(table), to, ctypes.byref(self.run))
            finally:
                self.buffers.give(memory)
        return sign


class Kernels:
    """Tensors that a GPU signs, where they are: of each piece 32 bytes get to the host."""

    def __init__(self, device, tensors, dtypes):
        self.device, self.gpu, self.stream = device, Gpu.of(device), torch.cuda.Stream(device)
        self.table, self.known = Table(tensors, dtypes), {}
        self.buffers = Memory(32 * self.table.first, True)

    def begin(self):
        self.data = {}
        self.pieces = torch.empty(32 * self.table.first, dtype=torch.uint8, device=self.device)

    def take(self, tensors):
        data, kept = {}, []
        for i, t in tensors.items():
            data[i] = t.data_ptr()
            if not t.is_contiguous() or data[i] % 16:
                kept.append(t.clone(memory_format=torch.contiguous_format))
                data[i] = kept[-1].data_ptr()
        with torch.cuda.device(self.device):
            rows = self._rows(data)
            call("tsr_device_sign", self.gpu.handle, torch.cuda.current_stream().cuda_stream, rows.data_ptr(), len(rows),
                 self.table.first, self.pieces.data_ptr())
        self.data.update(data)

    def _rows(self, data):
        """The table on the GPU, once made: tensors are mostly where they were."""
        where = tuple(data.items())
        if where not in self.known:
            if len(self.known) > 7:
                self.known.pop(next(iter(self.known)))
            self.known[where] = self.table.with_data(data).pin_memory().to(self.device, non_blocking=True)
        return self.known[where]

    def send(self):
        data, host = self.data, self.buffers.take()
        with torch.cuda.device(self.device):
            self.stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.stream):
                host.copy_(self.pieces, non_blocking=True)
                done = torch.cuda.Event(blocking=True)  # a thread that polls slows down the one that starts kernels
                done.record()
            self.pieces.record_stream(self.stream)

        def sign(to):
            done.synchronize()
            table = self.table.with_data(data)
            library().tsr_sign_pieces(table.data_ptr(), len(table), host.data_ptr(), to)
            self.buffers.give(host)
        return sign


def signers_of(tensors, dtypes, threads):
    """Who signs tensors, by their numbers: GPUs those that they have, the CPU the others and what is empty."""
    by_device = {}
    for i, t in enumerate(tensors):
        on_gpu = t.is_cuda and t.numel() and torch.version.cuda and library().tsr_gpu_built()
        by_device.setdefault(t.device if on_gpu else None, {})[i] = t
    signers = [Kernels(d, those, dtypes) if d else Copies(those, dtypes, threads) for d, those in by_device.items()]
    return signers, {i: signer for signer, those in zip(signers, by_device.values()) for i in those}


class SignatureRecorder(Recorder):
    def __init__(self, directory, optimizer, named_parameters, first_step=1, kind=None, threads=None):
        """first_step, kind: as of `tersor.record.GradientRecorder`. threads: that hash; None: at most 4."""
        if first_step < 1:
            raise ValueError(f"first_step={first_step}: the first step that an optimizer takes is 1")
        super().__init__(optimizer, named_parameters, first_step, kind)
        self.nranks = torch.distributed.get_world_size() if ranks.distributed() else 1
        name = "signatures.tsig" if self.nranks == 1 else f"signatures-rank{self.rank:05d}.tsig"
        self.path = os.path.join(directory, name)
        os.makedirs(directory, exist_ok=True)
        self.file = open(self.path, "xb", buffering=0)
        self.threads = threads or min(4, os.cpu_count() or 1)
        self.keys, self.last = None, ([], [], None)
        self.detach = hook(optimizer, self._before, self._after)

    def close(self):
        """Record no more, and wait until all is written; raises what went wrong."""
        self.detach()
        try:
            self.settle(0)
        finally:
            self.writer.shutdown()
            self.file.close()
            if self.keys is None:       # there was no step: what is there is no file of signatures
                os.unlink(self.path)

    def _parameters(self):
        return [(self.names[id(p)], p, g) for g in self.optimizer.param_groups for p in g["params"]]

    def _gradients(self):
        return {(name, "gradient"): local(p.grad) for name, p, _ in self._parameters() if p.grad is not None}

    def _states(self, p):
        return {str(k): local(t) for k, t in self.optimizer.state.get(p, {}).items()
                if type(t) in PLAIN or isinstance(t, (torch.Tensor, int, float)) and not isinstance(t, bool)}

    def _others(self):
        """By (parameter, what): the weights and states that there are."""
        found = {}
        for name, p, _ in self._parameters():
            found[name, "weight"] = local(p)
            for k, t in self._states(p).items():
                found[name, k] = t
        return found

    def _states_to_come(self, p, peers):
        """The states of a parameter; before it has any, what they will be like by those of its peers."""
        for q in (p, *peers):
            found, shape = self._states(q), local(q).shape
            if found and q is not p:
                return {k: local(p).to(t.dtype) if t.shape == shape else t
                        for k, t in found.items() if t.shape in (shape, ())}
            if found:
                return found
        return {}

    @torch.no_grad()
    def _before(self, optimizer, args, kwargs):
        check_step(optimizer, args, kwargs)
        if self.keys is None:
            self.gradients = {k: t.clone() for k, t in self._gradients().items()}
            self.loaded = {k: t.clone() for k, t in self._others().items()}
            return
        self.settle(1)
        self._start()
        self._take(self._by_signer(self._gradients()))

    @torch.no_grad()
    def _after(self, optimizer, args, kwargs):
        try:
            self._record()
        except BaseException:       # the step was taken: none may be written under its number
            self.writer.submit(self.file.close)
            raise

    def _record(self):
        self.check_groups()
        if self.keys is None:
            self._begin()
        self._take_others()
        self._submit(self.step, self.loss)
        self.step, self.loss = self.step + 1, None

    def _begin(self):
        """At the end of the first step, when the states are there: the head, and the state before that step."""
        all_of_them = {}
        for name, p, g in self._parameters():
            all_of_them[name, "gradient"] = self.gradients.get((name, "gradient"), local(p))
            all_of_them[name, "weight"] = local(p)
            all_of_them.update({(name, k): t for k, t in self._states_to_come(p, g["params"]).items()})
        for (name, what), t in all_of_them.items():
            if t.dtype not in DTYPES:
                raise TypeError(f"{name}: its {what} is of {t.dtype}: not recordable")
        self.keys = {key: i for i, key in enumerate(all_of_them)}
        whole = {n: not hasattr(p, "to_local") for n, p, _ in self._parameters()}
        head = json.dumps({
            "format": "tersor-signatures", "version": 1, "rank": self.rank, "ranks": self.nranks,
            **run_of(self.kind, self.optimizer), "param_groups": self.groups,
            "tensors": [{"name": n, "of": k, "dtype": DTYPES[t.dtype], "shape": list(t.shape),
                         **({} if whole[n] else {"part": True})} for (n, k), t in all_of_them.items()]}).encode()
        self.file.write(struct.pack("<8sQQ", b"TSRSIGN1", len(head), self._hash(head)) + head)
        self.like = [(t.shape, t.dtype, t.device) for t in all_of_them.values()]
        dtypes = [library().tsr_dtype_find(DTYPES[t.dtype].encode()) for t in all_of_them.values()]
        self.signers, self.signer = signers_of(list(all_of_them.values()), dtypes, self.threads)
        for step, tensors in (self.step - 1, self.loaded), (self.step, self.gradients):
            self._start()
            self._take(self._by_signer(tensors))
            if step < self.step:
                self._submit(step, None)
        del self.loaded, self.gradients

    def _start(self):
        for signer in self.signers:
            signer.begin()

    def _by_signer(self, tensors):
        mine = {signer: {} for signer in self.signers}
        for key, t in tensors.items():
            i = self.keys.get(key)
            if i is None or (t.shape, t.dtype, t.device) != self.like[i]:
                raise ValueError(f"step {self.step}: {key[0]}: its {key[1]} is new, or of another type, shape or device")
            mine[self.signer[i]][i] = t
        return mine

    def _take(self, mine):
        for signer, tensors in mine.items():
            signer.take(tensors)

    def _take_others(self):
        """What is where it was is not looked at one by one, which would take a small model's time."""
        objects, state = [], self.optimizer.state
        for _, p, _ in self._parameters():
            objects.append(p)
            objects.extend(state.get(p, {}).values())
        where = [t.data_ptr() if type(t) in PLAIN else None for t in objects]
        last_objects, last_where, mine = self.last
        if None in where or where != last_where or not all(map(operator.is_, objects, last_objects)):
            mine = self._by_signer(self._others())
            self.last = objects, where, mine
        self._take(mine)

    def _submit(self, step, loss):
        rates = [float(g["lr"]) for g in self.optimizer.param_groups]
        # Its value is waited for in the thread, and the job may change it by then.
        if isinstance(loss, torch.Tensor):
            waited = any(getattr(s, "device", None) == loss.device for s in self.signers)
            there = torch.empty_like(loss, device="cpu", pin_memory=waited, requires_grad=False)
            loss = there.copy_(loss.detach(), non_blocking=waited)
        self.writing.append(self.writer.submit(self._write, [s.send() for s in self.signers], step, loss, rates))

    @staticmethod
    def _hash(data):
        return library().tsr_xxh3(data, len(data))

    def _write(self, *step):
        """Append a step; after one that is not written to its end nothing is: none is missing in between."""
        try:
            self._append(*step)
        except BaseException:
            self.file.close()
            raise

    def _append(self, signing, step, loss, rates):
        signatures = (ctypes.c_char * (32 * len(self.keys)))()  # of what is not there: zeros
        for sign in signing:
            sign(ctypes.addressof(signatures))
        if self.file.closed:
            raise OSError(f"{self.path}: step {step} is not written, as a step before it was not")
        loss = math.nan if loss is None else float(loss)
        data = struct.pack(f"<Qd{len(rates)}d", step, loss, *rates) + bytes(signatures)
        data += struct.pack("<Q", self._hash(data))
        if self.file.write(data) != len(data):      # in one call: only the last step can be torn
            raise OSError(f"{self.path}: step {step} was not written to its end")
