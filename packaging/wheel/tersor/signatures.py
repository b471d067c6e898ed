# SPDX-License-Identifier: Apache-2.0
"""Record signatures of a PyTorch run for `tersor bisect`: hashes and figures of gradients, weights and states.

    recorder = SignatureRecorder("run", optimizer, model.named_parameters())
    for batch in batches:
        ...                           # any number of backward(), then clipping, if any
        recorder.loss = loss          # optional
        optimizer.step()              # copies the tensors; threads hash them while training goes on
    recorder.close()

Every rank that makes a recorder writes a file of its own, 32 bytes for a tensor and step. The copies take the memory
of gradients, weights and states once more on their device, and twice in host memory. docs/replay.md, "Signatures",
describes the files.
"""
import concurrent.futures
import ctypes
import json
import math
import os
import queue
import struct

import torch

from tersor import ranks
from tersor.library import call, library
from tersor.record import OPTIMIZERS, check_step, groups_of, hook, kind_of, run_of

DTYPES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.float64: "F64",
          torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8",
          torch.bool: "BOOL"}
ALIGN = 64  # of tensors in a buffer


def local(t):
    """This rank's part of a tensor, or the number that stands for one."""
    if isinstance(t, torch.Tensor):
        return (t.to_local() if hasattr(t, "to_local") else t).detach()
    return torch.tensor(float(t))


class Copies:
    """Copies of tensors on their devices, and from there in host memory."""

    def __init__(self, tensors):
        self.places, self.devices, total = [], {}, 0    # per tensor where it is; per device its range
        self.device = [t.device for t in tensors]
        for device in {t.device: None for t in tensors}:
            first = total
            for i, t in enumerate(tensors):
                if t.device == device:
                    self.places.append((i, total))
                    total += -(-t.numel() * t.element_size() // ALIGN) * ALIGN
            self.devices[device] = first, total
        self.places = [place for _, place in sorted(self.places)]
        cuda = [d for d in self.devices if d.type == "cuda"]
        self.host = queue.Queue()
        for _ in range(2):      # one is hashed while the other is filled
            self.host.put(torch.empty(total, dtype=torch.uint8, pin_memory=bool(cuda)))
        self.staged = {d: torch.empty(self.devices[d][1] - self.devices[d][0], dtype=torch.uint8, device=d) for d in cuda}
        self.streams = {d: torch.cuda.Stream(d) for d in cuda}

    def view(self, buffer, i, t, first=0):
        at = self.places[i] - first
        return buffer[at:at + t.numel() * t.element_size()].view(t.dtype).view(t.shape)

    def take(self, buffer, tensors):
        """Copy the tensors with these numbers: to their device, or if that is the host to the buffer."""
        for d, (first, _) in self.devices.items():
            if d in self.staged:    # the last step's copies have left it
                torch.cuda.current_stream(d).wait_stream(self.streams[d])
            mine = [(i, t) for i, t in tensors if t.device == d]
            into = [self.view(self.staged.get(d, buffer), i, t, first if d in self.staged else 0) for i, t in mine]
            if into and hasattr(torch, "_foreach_copy_"):
                torch._foreach_copy_(into, [t for _, t in mine])
            else:
                for a, (_, t) in zip(into, mine):
                    a.copy_(t)

    def send(self, buffer):
        """Begin to copy from all devices to the buffer; returns what tells when that is done."""
        events = []
        for d, staged in self.staged.items():
            first, end = self.devices[d]
            self.streams[d].wait_stream(torch.cuda.current_stream(d))
            with torch.cuda.stream(self.streams[d]):
                buffer[first:end].copy_(staged, non_blocking=True)
                events.append(self.streams[d].record_event())
        return events


class SignatureRecorder:
    def __init__(self, directory, optimizer, named_parameters, first_step=1, kind=None, threads=None):
        """first_step, kind: as of `tersor.record.GradientRecorder`. threads: that hash; None: at most 4."""
        if first_step < 1:
            raise ValueError(f"first_step={first_step}: the first step that an optimizer takes is 1")
        self.optimizer, self.kind = optimizer, kind or kind_of(optimizer)
        self.step, self.loss = first_step, None
        if self.kind not in OPTIMIZERS:
            raise ValueError(f"{self.kind} is none of {OPTIMIZERS}: which is it? (kind=)")
        self.names = {id(p): name for name, p in named_parameters}
        self.rank, self.nranks = ranks.rank(), torch.distributed.get_world_size() if ranks.distributed() else 1
        name = "signatures.tsig" if self.nranks == 1 else f"signatures-rank{self.rank:05d}.tsig"
        self.path = os.path.join(directory, name)
        os.makedirs(directory, exist_ok=True)
        self.file = open(self.path, "xb", buffering=0)
        self.writer = concurrent.futures.ThreadPoolExecutor(1, "tersor")
        self.hashers = concurrent.futures.ThreadPoolExecutor(threads or min(4, os.cpu_count() or 1), "tersor")
        self.writing, self.keys = [], None
        self.detach = hook(optimizer, self._before, self._after)

    def close(self):
        """Record no more, and wait until all is written; raises what went wrong."""
        self.detach()
        try:
            while self.writing:
                self.writing.pop(0).result()
        finally:
            self.writer.shutdown()
            self.hashers.shutdown()
            self.file.close()

    def _parameters(self):
        return [(self.names[id(p)], p, g) for g in self.optimizer.param_groups for p in g["params"]]

    def _tensors(self, gradients, others):
        """By (parameter, what): what there is now."""
        found = {}
        for name, p, _ in self._parameters():
            if gradients and p.grad is not None:
                found[name, "gradient"] = local(p.grad)
            if others:
                found[name, "weight"] = local(p)
                found.update({(name, k): t for k, t in self._states(p).items()})
        return found

    def _states(self, p, peers=()):
        """The states of a parameter, or before it has any, what they will be like by those of its peers."""
        for q in (p, *peers):
            found = {str(k): local(v) for k, v in self.optimizer.state.get(q, {}).items()
                     if isinstance(v, (torch.Tensor, int, float)) and not isinstance(v, bool)}
            if found and q is not p:
                return {k: local(p).to(t.dtype) if t.shape == local(q).shape else t
                        for k, t in found.items() if t.shape in (local(q).shape, ())}
            if found:
                return found
        return {}

    def _before(self, optimizer, args, kwargs):
        check_step(optimizer, args, kwargs)
        if self.keys is None:
            self.gradients = {k: t.clone() for k, t in self._tensors(True, False).items()}
            self.loaded = {k: t.clone() for k, t in self._tensors(False, True).items()}
            return
        while len(self.writing) > 1:    # and what went wrong until now
            self.writing.pop(0).result()
        if self.buffer is None:     # else the last step was not taken
            self.buffer = self.copies.host.get()
        self.present = set()
        self._take(self._tensors(True, False))

    def _after(self, optimizer, args, kwargs):
        groups = groups_of(self.kind, self.names, optimizer)
        if self.keys is None:
            self._begin(groups)
        if groups != self.groups:
            raise ValueError(f"step {self.step}: a hyperparameter other than lr has changed")
        self._take(self._tensors(False, True))
        self._submit(self.step, self.loss)
        self.step, self.loss = self.step + 1, None

    def _begin(self, groups):
        """At the end of the first step, when the states are there: the head, and the state before that step."""
        self.groups, all_of_them = groups, {}
        for name, p, g in self._parameters():
            all_of_them[name, "gradient"] = self.gradients.get((name, "gradient"), local(p))
            all_of_them[name, "weight"] = local(p)
            all_of_them.update({(name, k): t for k, t in self._states(p, g["params"]).items()})
        self.keys = {key: i for i, key in enumerate(all_of_them)}
        whole = {n: not hasattr(p, "to_local") for n, p, _ in self._parameters()}
        head = json.dumps({
            "format": "tersor-signatures", "version": 1, "rank": self.rank, "ranks": self.nranks,
            **run_of(self.kind, self.optimizer), "param_groups": groups,
            "tensors": [{"name": n, "of": k, "dtype": DTYPES[t.dtype], "shape": list(t.shape),
                         **({} if whole[n] else {"part": True})} for (n, k), t in all_of_them.items()]}).encode()
        self.file.write(struct.pack("<8sQQ", b"TSRSIGN1", len(head), self._hash(head)) + head)
        self.copies = Copies(list(all_of_them.values()))
        self.like = [t.to("meta") for t in all_of_them.values()]    # types and shapes alone
        self.numbers = [library().tsr_dtype_find(DTYPES[t.dtype].encode()) for t in self.like]
        for step, tensors in (self.step - 1, self.loaded), (self.step, self.gradients):
            self.buffer, self.present = self.copies.host.get(), set()
            self._take(tensors)
            if step < self.step:
                self._submit(step, None)
        del self.loaded, self.gradients

    def _take(self, tensors):
        for key, t in tensors.items():
            i = self.keys.get(key)
            if i is None or (t.dtype, t.shape, t.device) != (self.like[i].dtype, self.like[i].shape, self.copies.device[i]):
                raise ValueError(f"step {self.step}: {key[0]}: its {key[1]} is new, or of another type, shape or device")
        self.copies.take(self.buffer, [(self.keys[k], t) for k, t in tensors.items()])
        self.present.update(self.keys[k] for k in tensors)

    def _submit(self, step, loss):
        rates = [float(g["lr"]) for g in self.optimizer.param_groups]
        # Its value is waited for in the thread, and the job may change it by then.
        loss = loss.detach().clone() if isinstance(loss, torch.Tensor) else loss
        events = self.copies.send(self.buffer)
        self.writing.append(self.writer.submit(self._write, self.buffer, events, sorted(self.present), step,
                                               loss, rates))
        self.buffer = None

    @staticmethod
    def _hash(data):
        return library().tsr_xxh3(data, len(data))

    def _write(self, buffer, events, present, step, loss, rates):
        for e in events:
            e.synchronize()
        signatures = (ctypes.c_char * (32 * len(self.keys)))()  # of what is not there: zeros
        base, out = buffer.data_ptr(), ctypes.addressof(signatures)

        def sign(i):
            t = self.like[i]
            call("tsr_sign", base + self.copies.places[i], t.numel() * t.element_size(), self.numbers[i], out + 32 * i)
        try:
            list(self.hashers.map(sign, sorted(present, key=lambda i: -self.like[i].numel())))
        finally:
            self.copies.host.put(buffer)
        loss = math.nan if loss is None else float(loss)
        data = struct.pack(f"<Qd{len(rates)}d", step, loss, *rates) + bytes(signatures)
        data += struct.pack("<Q", self._hash(data))
        if self.file.write(data) != len(data):      # in one call: only the last step can be torn
            self.file.close()
            raise OSError(f"{self.path}: step {step} was not written to its end")
