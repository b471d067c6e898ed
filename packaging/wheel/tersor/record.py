# SPDX-License-Identifier: Apache-2.0
"""Record the gradients of a PyTorch run, as its optimizer sees them, for `tersor replay`.

    recorder = GradientRecorder("recording", optimizer, model.named_parameters(), first_step=401)
    for batch in batches:
        ...                           # any number of backward(), then clipping, if any
        recorder.loss = loss          # optional
        optimizer.step()              # copies the gradients; a thread writes them, and the manifest
    recorder.close()                  # from here on nothing is recorded, and all of it is written

docs/replay.md describes what is written. With FSDP2 every rank calls this, and close(); with DDP only rank 0
writes. Without the package safetensors the files are those of torch.save. For Hugging Face's Trainer
there is `tersor.transformers.RecordSteps`. `tersor.signatures` records hashes instead.
"""
import concurrent.futures
import functools
import json
import math
import os
import re
import types

import torch

from tersor import ranks

try:
    from safetensors.torch import save_file
except ImportError:
    save_file = None

OPTIMIZERS = ("sgd", "sgdw", "adam", "adamw", "lion", "gefen", "muon", "gefen-muon", "soap")
HYPERPARAMETERS = ("betas", "eps", "weight_decay", "momentum", "dampening", "nesterov",
                   "decouple_lr", "initial_lr", "amsgrad", "maximize", "adjust_lr_fn", "ns_coefficients",
                   "ns_steps", "precondition_frequency", "max_precond_dim", "merge_dims", "precondition_1d",
                   "normalize_grads", "correct_bias")
# What pytorch_optimizer calls some of these
OTHER_NAMES = {"max_precondition_dim": "max_precond_dim", "normalize_gradient": "normalize_grads"}


def kind_of(optimizer):
    """The update rule of an optimizer, whatever it keeps its state in: FlashOptim's, COAT's and the 8-bit ones of bitsandbytes and torchao have the rules of PyTorch's."""
    cls = type(optimizer)
    name = re.sub(r"^_?(flash|coat|paged)?|(4bit|8bit|16bit|32bit|fp8)?$", "", cls.__name__.lower())
    if name == "gefenmuon":
        return "gefen-muon"
    if name == "soap" and cls.__module__.startswith("heavyball"):
        return "soap of heavyball"  # another rule, whose state has other names
    apart = cls.__module__.startswith("bitsandbytes")  # it decays weights apart from the gradient, in Adam, too
    if name == "adam" and (apart or any(g.get("decoupled_weight_decay") for g in optimizer.param_groups)):
        return "adamw"  # of RAdam and others the option does not make one
    return name


def order_of(kind, group):
    """Whose order of operations PyTorch's step of a group has, as `tersor replay --order` takes it; None: unknown.

    With the version of PyTorch and the other members of the manifest, replay tells the orders of one name apart."""
    params, fused = group["params"], bool(group.get("fused"))
    if group.get("differentiable") or kind not in ("adam", "adamw", "sgd", "muon"):
        return None
    if not any(p.is_cuda for p in params):
        return "torch-cpu-fused" if fused else "torch-cpu"
    if not torch.version.cuda or not all(p.is_cuda and p.dtype == torch.float32 for p in params):
        return None
    if fused:
        return "torch-cuda-fused"
    return "torch-cuda-forloop" if group.get("foreach") is False else "torch-cuda-foreach"


def same(groups, key):
    """What all groups have for a switch, true or false; None where they differ or have none."""
    found = {bool(g[key]) if g.get(key) is not None else None for g in groups}
    return found.pop() if len(found) == 1 else None


def groups_of(kind, names, optimizer):
    """The groups of a manifest: parameters and hyperparameters."""
    groups = [{"params": [names[id(p)] for p in g["params"]],
               **({"betas": (g["beta1"], g["beta2"])} if kind == "gefen" and "beta1" in g else {}),
               **({"tensor_lr": True} if torch.is_tensor(g.get("lr")) else {}),
               **({"maximize": True} if getattr(optimizer, "maximize", False) else {}),
               **({"shampoo_beta": g["shampoo_beta"]} if g.get("shampoo_beta") is not None and g["shampoo_beta"] >= 0 else {}),
               **{mine: g[k] for k, mine in OTHER_NAMES.items() if kind == "soap" and k in g},
               **{k: g[k] for k in HYPERPARAMETERS if k in g}} for g in optimizer.param_groups]
    return json.loads(json.dumps(groups, default=float))  # betas and such may be tensors


def run_of(kind, optimizer):
    """What a manifest says of the run besides its groups."""
    orders = {order_of(kind, g) for g in optimizer.param_groups}
    ours = type(optimizer).__module__.startswith("torch.optim")
    if kind == "soap" and type(optimizer).__module__.startswith("pytorch_optimizer"):
        orders, ours = {"pytorch-optimizer"}, True
    device = next((p.device for g in optimizer.param_groups for p in g["params"]), None)
    return {"optimizer": kind, "order": orders.pop() if ours and len(orders) == 1 else None,
            "pytorch": torch.__version__,
            "device": torch.cuda.get_device_name(device) if device is not None
            and device.type == "cuda" else str(device and device.type),
            **{key: same(optimizer.param_groups, key) for key in ("fused", "foreach", "capturable")}}


def check_step(optimizer, args, kwargs):
    """Refuse a step whose gradients are not there before it."""
    if any(a is not None and a is not optimizer for a in (*args, *kwargs.values())):
        raise ValueError("optimizer.step() computes the gradients itself: not recordable")
    if getattr(optimizer, "grad_scale", None) is not None:
        raise ValueError("call scaler.unscale_(optimizer) before scaler.step(optimizer)")


def hook(optimizer, before, after=None):
    """Have an optimizer call `before(optimizer, args, kwargs)` and `after` around its steps; returns what ends it."""
    if hasattr(optimizer, "register_step_pre_hook"):
        handles = [optimizer.register_step_pre_hook(before)]
        if after:
            handles.append(optimizer.register_step_post_hook(after))
        return lambda: [h.remove() for h in handles]
    original = optimizer.step   # before PyTorch 2.0; a method, as learning rate schedulers want it

    @functools.wraps(original)
    def step(self, *args, **kwargs):
        before(self, args, kwargs)
        result = original(*args, **kwargs)
        if after:
            after(self, args, kwargs)
        return result
    optimizer.step = types.MethodType(step, optimizer)
    return functools.partial(setattr, optimizer, "step", original)


class Recorder:
    """What is recorded of the steps of an optimizer; a thread writes it."""

    def __init__(self, optimizer, named_parameters, first_step, kind):
        self.optimizer, self.kind = optimizer, kind or kind_of(optimizer)
        if self.kind not in OPTIMIZERS:
            raise ValueError(f"{self.kind} is none of {OPTIMIZERS}: which is it? (kind=)")
        self.step, self.loss, self.groups = first_step, None, None
        self.names = {id(p): name for name, p in named_parameters}
        self.rank = ranks.rank()
        self.writer, self.writing = concurrent.futures.ThreadPoolExecutor(1, "tersor"), []

    def settle(self, left):
        """Wait until at most so many steps are still to be written; raises what went wrong."""
        while len(self.writing) > left:
            self.writing.pop(0).result()

    def check_groups(self):
        groups = groups_of(self.kind, self.names, self.optimizer)
        self.groups = self.groups or groups
        if groups != self.groups:
            raise ValueError(f"step {self.step}: a hyperparameter other than lr has changed")


class GradientRecorder(Recorder):
    def __init__(self, directory, optimizer, named_parameters, first_step=1, dtype=None, kind=None):
        """dtype: what gradients are stored as, torch.bfloat16 or such; None: as they are.
        kind: one of OPTIMIZERS, where the optimizer's class does not tell."""
        super().__init__(optimizer, named_parameters, first_step, kind)
        self.directory, self.dtype = directory, dtype
        sharded = any(hasattr(p, "to_local") for g in optimizer.param_groups for p in g["params"])
        self.nranks = torch.distributed.get_world_size() if sharded and ranks.distributed() else 1
        self.manifest = None
        self.unnamed = []   # steps that some rank may not have written yet
        if os.path.exists(os.path.join(directory, "manifest.json")):
            raise FileExistsError(f"{directory} already holds a recording")
        os.makedirs(directory, exist_ok=True)
        self._detach = hook(optimizer, self._hook)

    def close(self):
        """Record no more, and wait until all is written; raises what went wrong."""
        self._detach()
        self.settle(0)
        named, self.unnamed = self.unnamed, []
        if named:
            ranks.barrier()
            self._write_manifest(named)

    def _hook(self, optimizer, args, kwargs):
        try:
            self._record(optimizer, args, kwargs)
        except BaseException:
            self.settle(0)      # what was recorded until now is a recording
            raise

    def _record(self, optimizer, args, kwargs):
        check_step(optimizer, args, kwargs)
        self.check_groups()
        if self.manifest is None:
            self.manifest = {"format": "tersor-recording", "version": 1, **run_of(self.kind, optimizer),
                             "param_groups": self.groups, "steps": []}
        stem, suffix = f"step-{self.step:08d}", ".safetensors" if save_file else ".pt"
        files = [f"{stem}-rank{r:05d}{suffix}" for r in range(self.nranks)]
        files = files if self.nranks > 1 else [stem + suffix]
        rates = [float(g["lr"]) for g in optimizer.param_groups]
        loss = None if self.loss is None else float(self.loss)
        step = {"step": self.step, **({"files": files} if self.nranks > 1 else {"file": files[0]}), "lr": rates,
                "loss": loss if loss is not None and math.isfinite(loss) else None}
        self.settle(1)      # at most two steps are in memory
        named = [step]
        if self.nranks > 1:     # the manifest names no file that is not there, of any rank
            ranks.barrier()
            named, self.unnamed = self.unnamed[:-1], [*self.unnamed[-1:], step]
        if self.rank < self.nranks:
            self.writing.append(self.writer.submit(self._write, files[self.rank], self._gradients(), named))
        self.step, self.loss = self.step + 1, None

    def _write(self, file, gradients, named):
        self._write_gradients(os.path.join(self.directory, file), *gradients)
        self._write_manifest(named)

    def _gradients(self):
        """Copies of the gradients that this rank writes, and where in the whole its parts begin."""
        tensors, offsets = {}, {}
        for group in self.optimizer.param_groups:
            for p in group["params"]:
                name, grad = self.names[id(p)], p.grad
                if grad is None:
                    continue
                if hasattr(grad, "to_local"):
                    start, _, mine = ranks.part_of(grad)
                    offsets[name], grad = {"saved_offsets": start}, grad.to_local()
                else:
                    mine = self.rank == 0
                if mine:
                    grad = grad.detach().to("cpu", self.dtype or grad.dtype, copy=True)
                    tensors[name] = grad.contiguous()
        return tensors, offsets

    def _write_gradients(self, path, tensors, offsets):
        # As torch.distributed.checkpoint says it: where each rank's part begins in the whole.
        info = {"DCP_SHARDING_INFO": json.dumps(offsets)} if offsets else {}
        if save_file:
            save_file(tensors, path + ".tmp", metadata={"format": "pt", **info})
        else:
            torch.save({**tensors, **info}, path + ".tmp")
        os.replace(path + ".tmp", path)

    def _write_manifest(self, steps):
        if self.rank or not steps:
            return
        self.manifest["steps"] += steps
        path = os.path.join(self.directory, "manifest.json")
        with open(path + ".tmp", "w") as f:
            json.dump(self.manifest, f, indent=1, allow_nan=False)
        os.replace(path + ".tmp", path)  # a run killed at any point leaves a valid recording
