#!/usr/bin/env python3
"""The Python package inside training jobs of the frameworks that are installed: save, lose everything, resume.

    TERSOR=build/tersor jobs.py [NAME ...]

Every job trains, saves with tersor, and is continued from the save; what is loaded must be, bit for bit, what
`tersor unpack` restores, and the run that continues must stay with the one that never stopped.  Prints a line per
job; a framework that is not installed is named.  Ranks are processes on the CPU with gloo.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "packaging" / "wheel"))
PROGRAM = os.path.abspath(os.environ.get("TERSOR", ROOT / "build" / "tersor"))
os.environ["TERSOR"] = PROGRAM
os.environ.setdefault("TERSOR_LIBRARY", os.path.join(os.path.dirname(PROGRAM), "libtersor.so"))

import torch                                                            # noqa: E402
import torch.distributed as dist                                        # noqa: E402
import torch.distributed.checkpoint as dcp                              # noqa: E402
import torch.multiprocessing as mp                                      # noqa: E402


def program(*args, status=0):
    done = subprocess.run([PROGRAM, *map(str, args)], capture_output=True, text=True)
    assert done.returncode == status, (args, done.returncode, done.stderr)
    return done.stdout + done.stderr


# ---- Ranks: FSDP2 and torch.distributed.checkpoint --------------------------------------------------

def sharded(ranks):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Embedding(101, 64), torch.nn.Linear(64, 301), torch.nn.LayerNorm(301),
                                torch.nn.Linear(301, 77))
    mesh = init_device_mesh("cpu", (ranks,))
    for layer in [*model, model]:
        fully_shard(layer, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def train(model, optimizer, steps):
    for step in steps:
        torch.manual_seed(step)
        optimizer.zero_grad()
        model(torch.randint(0, 101, (8,))).square().mean().backward()
        optimizer.step()


def whole(model, optimizer):
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
    return get_state_dict(model, optimizer, options=StateDictOptions(full_state_dict=True, cpu_offload=True))


def on_rank(rank, ranks, work, folder, port):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo")
    work(rank, ranks, folder)
    dist.destroy_process_group()


PORT = [29640 + os.getpid() % 300]


def spawn(ranks, work, folder):
    PORT[0] += 1
    mp.spawn(on_rank, (ranks, work, folder, PORT[0]), ranks)


def save_ranks(rank, ranks, folder):
    import tersor.torch
    from tersor.dcp import TersorWriter
    model, optimizer = sharded(ranks)
    train(model, optimizer, range(3))
    from torch.distributed.checkpoint.state_dict import get_state_dict
    state = dict(zip(("model", "optim"), get_state_dict(model, optimizer)), epoch=7)
    for name in "a", "a":                       # the second replaces the first
        writer = TersorWriter(f"{folder}/{name}")
        dcp.async_save(state, storage_writer=writer, async_stager=writer.stager).result()
    dcp.save(state, storage_writer=TersorWriter(f"{folder}/b", state="tight", entropy=True))
    saved = tersor.torch.save(f"{folder}/c", model, optimizer, epoch=7)
    file = f"{folder}/c/shard-{rank + 1:05d}-model-00001-of-00001.safetensors"
    assert (saved.path, saved.nbytes) == (f"{folder}/c", os.path.getsize(file)) and saved.blocked, saved
    train(model, optimizer, range(3, 6))
    if rank == 0:
        torch.save(whole(model, optimizer), f"{folder}/on-{ranks}.pt") if ranks == 1 else None
    full = whole(model, optimizer)
    if rank == 0:
        torch.save(full, f"{folder}/straight.pt")


def load_ranks(rank, ranks, folder):
    import tersor.torch
    from tersor.dcp import TersorReader
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    for name in "a", "b", "c":
        model, optimizer = sharded(ranks)
        if name == "c":
            tersor.torch.load(f"{folder}/{name}", model, optimizer)
        else:
            state = dict(zip(("model", "optim"), get_state_dict(model, optimizer)), epoch=0)
            dcp.load(state, storage_reader=TersorReader(f"{folder}/{name}", check=rank == 0))
            assert state["epoch"] == 7
            set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"])
        full = whole(model, optimizer)
        if rank == 0:
            torch.save(full, f"{folder}/{name}-{ranks}.pt")
        train(model, optimizer, range(3, 6))
        full = whole(model, optimizer)
        if rank == 0:
            torch.save(full, f"{folder}/{name}-{ranks}-on.pt")


def flat(value, prefix=""):
    if isinstance(value, torch.Tensor):
        return {prefix: value}
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else ()
    return {name: t for key, each in items for name, t in flat(each, f"{prefix}.{key}").items()}


def fsdp2(folder):
    """2 ranks save, 1, 3 and 4 load; and torch's own reader loads what unpack restores."""
    spawn(2, save_ranks, folder)
    for ranks in 1, 3, 4:
        spawn(ranks, load_ranks, folder)
    for name in "abc":
        first, *others = (flat(torch.load(f"{folder}/{name}-{n}.pt", weights_only=False)) for n in (1, 3, 4))
        for other in others:
            assert first.keys() == other.keys() and all(torch.equal(t, other[key]) for key, t in first.items())
        program("verify", f"{folder}/{name}")
    straight = flat(torch.load(f"{folder}/straight.pt", weights_only=False))
    on = flat(torch.load(f"{folder}/a-3-on.pt", weights_only=False))
    apart = max(((t - on[key]).norm() / t.norm()).item() for key, t in straight.items()
                if ".exp_avg" not in key and t.is_floating_point() and t.norm())
    program("unpack", f"{folder}/a", "-o", f"{folder}/plain")
    program("diff", f"{folder}/a", f"{folder}/plain")
    program("store", "add", f"{folder}/store", f"{folder}/a", "--step", 3)
    said = program("unpack", f"{folder}/a/shard-00001-model-00001-of-00001.safetensors", "-o", f"{folder}/x", status=3)
    assert "parts of tensors" in said, said
    model = {f"model.{k}": t for k, t in torch.load(f"{folder}/a-1.pt", weights_only=False)[0].items()}
    loaded = {key: torch.zeros_like(t) for key, t in model.items()}
    dcp.load(loaded, storage_reader=dcp.HuggingFaceStorageReader(f"{folder}/plain"), no_dist=True)
    assert all(torch.equal(t, loaded[key]) for key, t in model.items())
    return f"2 ranks to 1, 3 and 4: the same bits; weights {apart:.1e} off after 3 more steps"


class Custom:
    """An object that only a pickle can hold."""
    def __eq__(self, other):
        return type(other) is Custom


class Evil:
    def __reduce__(self):
        return os.mkdir, ("evil-was-here",)


def hostile(folder):
    """What somebody else wrote runs no code: objects are refused unless they are trusted, metadata always."""
    import pickle
    from tersor.dcp import TersorReader, TersorWriter
    dcp.save({"x": Custom(), "w": torch.ones(40)}, storage_writer=TersorWriter(f"{folder}/a"), no_dist=True)

    def load(**arguments):
        state = {"x": None, "w": torch.zeros(40)}
        dcp.load(state, storage_reader=TersorReader(f"{folder}/a", check=False, **arguments), no_dist=True)
        return state
    try:
        load()
        raise SystemExit("an object was unpickled")
    except BaseException as e:      # DCP's is no Exception
        assert "x: is an object that only a pickle holds" in str(e), e
    state = load(trust=True)
    assert state["x"] == Custom() and torch.equal(state["w"], torch.ones(40))
    for evil in Evil(), torch.load, {"x": os.system}:
        pathlib.Path(f"{folder}/a/.metadata").write_bytes(pickle.dumps(evil))
        try:
            TersorReader(f"{folder}/a", check=False).read_metadata()
            raise AssertionError("a function was imported")
        except pickle.UnpicklingError as e:
            assert "expected what DCP's metadata has" in str(e), e
    assert not os.path.exists("evil-was-here")
    return "refused"


def types(folder):
    """Every element type, a scalar and an empty tensor: what is saved is loaded."""
    from tersor.dcp import TersorReader, TersorWriter
    from tersor.skeleton import DTYPES
    saved = {name: torch.arange(1, 120).float().to(getattr(torch, name)) for name in DTYPES}
    saved.update(scalar=torch.tensor(2.5), empty=torch.zeros(3, 0))
    dcp.save(saved, storage_writer=TersorWriter(folder), no_dist=True)
    loaded = {name: torch.zeros_like(t) for name, t in saved.items()}
    dcp.load(loaded, storage_reader=TersorReader(folder), no_dist=True)
    for name, t in saved.items():
        assert torch.equal(*(x.reshape(-1).view(torch.uint8) for x in (t, loaded[name]))), name
    return f"{len(DTYPES)} element types: the same bits"


# ---- Frameworks on one process ----------------------------------------------------------------------

def trainer(folder):
    """Hugging Face's Trainer, whose checkpoints are replaced by packed ones."""
    import transformers
    from tersor.transformers import TersorCallback, restore
    config = transformers.LlamaConfig(vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                                      num_attention_heads=4, max_position_embeddings=64)
    data = [{"input_ids": (ids := [(i * 7 + j * j) % 256 for j in range(32)]), "labels": ids} for i in range(64)]

    def make(steps, callbacks, where, every=5):
        transformers.set_seed(1)
        model = transformers.LlamaForCausalLM(config)
        args = transformers.TrainingArguments(where, max_steps=steps, save_steps=every, save_total_limit=2,
                                              per_device_train_batch_size=4, report_to=[], use_cpu=True,
                                              logging_steps=1, disable_tqdm=True)
        return transformers.Trainer(model, args, train_dataset=data, callbacks=callbacks)
    straight = make(10, [], f"{folder}/straight")
    straight.train()
    assert restore(f"{folder}/run") is None
    make(5, [TersorCallback(state="tight")], f"{folder}/run", every=1).train()
    assert os.listdir(f"{folder}/run") == ["packed"], os.listdir(f"{folder}/run")
    assert sorted(os.listdir(f"{folder}/run/packed")) == ["checkpoint-4", "checkpoint-5"]
    interrupted(f"{folder}/run", TersorCallback)
    resumed = make(10, [TersorCallback(replace=False)], f"{folder}/run")
    resumed.train(resume_from_checkpoint=restore(f"{folder}/run"))
    losses = [[e["loss"] for e in t.state.log_history if "loss" in e] for t in (straight, resumed)]
    assert len(losses[0]) == len(losses[1]) == 10
    apart = max(abs(a - b) for a, b in zip(*losses))
    assert apart < 0.02, losses
    program("verify", f"{folder}/run/packed/checkpoint-10")
    return f"resumed at step 5 of 10: losses at most {apart:.4f} apart"


def interrupted(run, callback):
    """A Trainer killed while it wrote a checkpoint, and a callback killed while it removed one."""
    from tersor.transformers import restore
    os.mkdir(f"{run}/checkpoint-7")
    open(f"{run}/checkpoint-7/model.safetensors", "w").close()
    whole = restore(run)
    names = sorted(os.listdir(whole))
    assert whole == f"{run}/checkpoint-5" and "optimizer.pt" in names, (whole, names)
    remove = shutil.rmtree

    def killed(path):
        os.unlink(f"{path}/optimizer.pt")
        raise KeyboardInterrupt
    shutil.rmtree = killed
    try:
        callback().pack(whole, run, keep=False)
        raise AssertionError("it was not interrupted")
    except KeyboardInterrupt:
        pass
    finally:
        shutil.rmtree = remove
    assert sorted(os.listdir(restore(run))) == names, "half of a checkpoint"
    callback().pack(f"{run}/checkpoint-5", run, keep=False)     # removes what was left
    remove(f"{run}/checkpoint-7")
    assert os.listdir(run) == ["packed"], os.listdir(run)


def lightning(folder):
    """Lightning with the checkpoints of its CheckpointIO packed."""
    import lightning.pytorch as pl
    from tersor.lightning import TersorCheckpointIO

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.net = torch.nn.Linear(64, 33)
            self.losses = []

        def training_step(self, batch, i):
            loss = (self.net(batch[0]) - 1).square().mean()
            self.losses.append(loss.item())
            return loss

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-2)

    def run(epochs, path, module):
        pl.seed_everything(1)
        data = torch.utils.data.TensorDataset(torch.randn(64, 64, generator=torch.Generator().manual_seed(2)))
        t = pl.Trainer(max_epochs=epochs, accelerator="cpu", logger=False, enable_progress_bar=False,
                       plugins=[TersorCheckpointIO()], default_root_dir=folder, enable_model_summary=False,
                       enable_checkpointing=False)
        t.fit(module, torch.utils.data.DataLoader(data, batch_size=16), ckpt_path=path)
        return t
    straight = Module()
    run(4, None, straight)
    half = Module()
    run(2, None, half).save_checkpoint(f"{folder}/half.ckpt")
    program("verify", f"{folder}/half.ckpt")
    resumed = Module()
    run(4, f"{folder}/half.ckpt", resumed)
    apart = max(abs(a - b) for a, b in zip(straight.losses[8:], resumed.losses))
    assert len(resumed.losses) == 8 and apart < 1e-3, (straight.losses, resumed.losses)
    return f"resumed at epoch 2 of 4: losses at most {apart:.1e} apart"


def accelerate(folder):
    """Accelerate's save_state and load_state around packed directories."""
    import accelerate as hf
    from tersor.accelerate import load_state, save_state

    def make():
        torch.manual_seed(1)
        model = torch.nn.Linear(64, 33)
        accelerator = hf.Accelerator(cpu=True)
        return accelerator, *accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-2))

    def steps(model, optimizer, n):
        found = []
        for _ in range(n):
            optimizer.zero_grad()
            loss = (model(torch.randn(8, 64)) - 1).square().mean()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found
    accelerator, model, optimizer = make()
    steps(model, optimizer, 5)
    save_state(accelerator, f"{folder}/state")
    straight = steps(model, optimizer, 5)
    assert os.listdir(folder) == ["state"]
    program("verify", f"{folder}/state")
    accelerator, model, optimizer = make()
    load_state(accelerator, f"{folder}/state")
    apart = max(abs(a - b) for a, b in zip(straight, steps(model, optimizer, 5)))
    assert os.listdir(folder) == ["state"] and apart < 1e-3, apart
    return f"resumed: losses at most {apart:.1e} apart"


JOBS = {"fsdp2": fsdp2, "types": types, "hostile": hostile, "trainer": trainer, "lightning": lightning,
        "accelerate": accelerate}
NEEDS = {"trainer": "transformers", "lightning": "lightning", "accelerate": "accelerate"}


def main():
    print(f"torch {torch.__version__}")
    for name in sys.argv[1:] or JOBS:
        try:
            __import__(NEEDS.get(name, "torch"))
        except ImportError:
            print(f"{name}: not installed, left out")
            continue
        folder = tempfile.mkdtemp(prefix=f"tersor-{name}-")
        print(f"{name}: {JOBS[name](folder)}", flush=True)
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
