#!/usr/bin/env python3
"""The Python package inside training jobs of the frameworks that are installed: save, lose everything, resume.

    TERSOR=build/tersor jobs.py [NAME ...]

Every job trains, saves with tersor, and is continued from the save; what is loaded must be, bit for bit, what
`tersor unpack` restores, and the run that continues must stay with the one that never stopped.  Prints a line per
job; a framework that is not installed is named.  Ranks are processes on the CPU with gloo.
"""
import json
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
    """A model whose tensors no number of ranks divides, and of which some have no part on the last of eight."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Embedding(101, 64), torch.nn.Linear(64, 301), torch.nn.LayerNorm(301),
                                torch.nn.Linear(301, 5))
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
    dist.barrier()
    dist.destroy_process_group()


PORT = [29640 + os.getpid() % 300]


def spawn(ranks, work, folder):
    """Ranks are forked from one server that has PyTorch."""
    PORT[0] += 1
    mp.get_context("forkserver").set_forkserver_preload(["torch", "torch.distributed.checkpoint",
                                                         "torch.distributed.fsdp"])
    mp.start_processes(on_rank, (ranks, work, folder, PORT[0]), ranks, start_method="forkserver")


def state_of(model, optimizer):
    from torch.distributed.checkpoint.state_dict import get_state_dict
    return dict(zip(("model", "optim"), get_state_dict(model, optimizer)))


def note(name, model, optimizer):
    """Keep the whole state, for the one who started the ranks."""
    full = whole(model, optimizer)
    if dist.get_rank() == 0:
        torch.save(full, f"{name}.pt")


def save_ranks(rank, ranks, folder):
    import tersor.torch
    from tersor.dcp import TersorWriter
    model, optimizer = sharded(ranks)
    train(model, optimizer, range(3))
    state = {**state_of(model, optimizer), "epoch": 7}
    for name in "a", "a":                       # the second replaces the first
        writer = TersorWriter(f"{folder}/{name}")
        dcp.async_save(state, storage_writer=writer, async_stager=writer.stager).result()
    dcp.save(state, storage_writer=TersorWriter(f"{folder}/b", state="tight", entropy=True))
    saved = tersor.torch.save(f"{folder}/c", model, optimizer, epoch=7)
    file = f"{folder}/c/shard-{rank + 1:05d}-model-00001-of-00001.safetensors"
    assert (saved.path, saved.nbytes) == (f"{folder}/c", os.path.getsize(file)) and saved.blocked, saved
    train(model, optimizer, range(3, 6))
    note(f"{folder}/straight", model, optimizer)


def load_ranks(rank, ranks, folder):
    """Load what other ranks saved, note it, train on; and save "a" anew, over what more ranks wrote."""
    import tersor.torch
    from torch.distributed.checkpoint.state_dict import set_state_dict
    from tersor.dcp import TersorReader
    for name in "c", "b", "a":
        model, optimizer = sharded(ranks)
        if name == "c":
            tersor.torch.load(f"{folder}/{name}", model, optimizer)
        else:
            state = {**state_of(model, optimizer), "epoch": 0}
            dcp.load(state, storage_reader=TersorReader(f"{folder}/{name}", check=rank == 0))
            assert state["epoch"] == 7
            set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"])
        note(f"{folder}/{name}-{ranks}", model, optimizer)
    tersor.torch.save(f"{folder}/a", model, optimizer, epoch=7)
    train(model, optimizer, range(3, 6))
    note(f"{folder}/on-{ranks}", model, optimizer)


def flat(value, prefix=""):
    if isinstance(value, torch.Tensor):
        return {prefix: value}
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else ()
    return {name: t for key, each in items for name, t in flat(each, f"{prefix}.{key}").items()}


def noted(name):
    return flat(dict(zip(("model", "optim"), torch.load(f"{name}.pt", weights_only=False))))


def restored(packed, plain):
    """What PyTorch's own reader loads of what `tersor unpack` restores."""
    program("verify", packed)
    shutil.rmtree(plain, ignore_errors=True)
    program("unpack", packed, "-o", plain)
    program("diff", packed, plain)
    reader = dcp.HuggingFaceStorageReader(plain)
    found = {name: torch.zeros(m.size, dtype=m.properties.dtype)
             for name, m in reader.read_metadata().state_dict_metadata.items()}
    dcp.load(found, storage_reader=reader, no_dist=True)
    return {f".{name}": t for name, t in found.items()}


def fsdp2(folder):
    """8 ranks save, 3 load and save over it, so does 1, and 4 load: the bits that `tersor unpack` restores."""
    spawn(8, save_ranks, folder)
    program("store", "add", f"{folder}/store", f"{folder}/a", "--step", 3)
    said = program("unpack", f"{folder}/a/shard-00001-model-00001-of-00001.safetensors", "-o", f"{folder}/x", status=3)
    assert "parts of tensors" in said, said
    counts = 3, 1, 4
    for ranks in counts:
        expected = {name: restored(f"{folder}/{name}", f"{folder}/plain-{name}") for name in "abc"}
        spawn(ranks, load_ranks, folder)
        for name, tensors in expected.items():
            found = noted(f"{folder}/{name}-{ranks}")
            assert found.keys() == tensors.keys(), found.keys() ^ tensors.keys()
            assert all(torch.equal(t, tensors[key]) for key, t in found.items()), name
    straight, *on = (noted(f"{folder}/{name}") for name in ("straight", *(f"on-{ranks}" for ranks in counts)))
    apart = [max(((t - each[key]).norm() / t.norm()).item() for key, t in straight.items()
                 if key.startswith(".model") and t.norm()) for each in on]
    assert max(apart) < 0.02, apart
    return f"8 ranks to 3 to 1 to 4: the same bits; weights at most {max(apart):.1e} off after 3 more steps"


def losses(model, optimizer, n):
    """Those of n steps on any data."""
    found = []
    for _ in range(n):
        optimizer.zero_grad()
        loss = (model(torch.randn(8, 64)) - 1).square().mean()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def ddp_ranks(rank, ranks, folder):
    import tersor.torch
    torch.manual_seed(1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 33))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    def steps(n):
        return losses(model, optimizer, n)
    steps(5)
    saved = tersor.torch.async_save(f"{folder}/step-{{step}}.tersor", model, optimizer, step=5).result()
    assert bool(saved.nbytes) == (rank == 0)
    dist.barrier()
    generator = torch.get_rng_state()
    straight = steps(5)
    for t in model.parameters():
        t.data.zero_()
    optimizer.state.clear()
    assert tersor.torch.load(tersor.torch.latest(f"{folder}/step-{{step}}.tersor"), model, optimizer) == []
    torch.set_rng_state(generator)
    apart = max(abs(a - b) for a, b in zip(straight, steps(5)))
    assert 0 < apart < 1e-3, apart


def ddp(folder):
    """A loop of one's own on two ranks that hold the same: the first saves, all load."""
    spawn(2, ddp_ranks, folder)
    program("verify", f"{folder}/step-5.tersor")
    return "resumed on 2 ranks: losses at most 1e-3 apart"


def record_ranks(rank, ranks, folder):
    """Record four steps, the writing of which takes longer than they do; the last is not waited for at first."""
    import time
    from tersor.record import GradientRecorder
    model, optimizer = sharded(ranks)
    recorder = GradientRecorder(f"{folder}/recording", optimizer, model.named_parameters())
    write = recorder._write_gradients

    def slow(*args):
        time.sleep(0.5 if rank else 0)
        write(*args)
    recorder._write_gradients = slow
    kept = {}
    for step in range(1, 5):
        train(model, optimizer, [step])
        kept[step] = {name: p.grad.full_tensor() for name, p in model.named_parameters()}
    waiting = sum(not each.done() for each in recorder.writing)
    dist.barrier()
    if rank == 0:
        named = [e["step"] for e in json.loads(pathlib.Path(f"{folder}/recording/manifest.json").read_text())["steps"]]
        assert named == [1, 2], named
    recorder.close()
    assert waiting or not rank, "a step waited for its file"
    if rank == 0:
        torch.save(kept, f"{folder}/kept.pt")


def record(folder):
    """Ranks of FSDP2 record in the background; put together, the parts are the gradients."""
    from safetensors.torch import load_file
    spawn(3, record_ranks, folder)
    steps = json.loads(pathlib.Path(f"{folder}/recording/manifest.json").read_text())["steps"]
    assert [each["step"] for each in steps] == [1, 2, 3, 4]
    program("inspect", f"{folder}/recording")
    for each, whole in zip(steps, torch.load(f"{folder}/kept.pt").values()):
        parts = [load_file(f"{folder}/recording/{name}") for name in each["files"]]
        assert all(torch.equal(torch.cat([p[name] for p in parts if name in p]), t) for name, t in whole.items())
    return "3 ranks, 4 steps: the gradients"


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
    from tersor.structure import DTYPES
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
        callback().pack(whole, run)
        raise AssertionError("it was not interrupted")
    except KeyboardInterrupt:
        pass
    finally:
        shutil.rmtree = remove
    assert sorted(os.listdir(restore(run))) == names, "half of a checkpoint"
    callback().pack(f"{run}/checkpoint-5", run)     # removes what was left
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

    accelerator, model, optimizer = make()
    losses(model, optimizer, 5)
    save_state(accelerator, f"{folder}/state")
    straight = losses(model, optimizer, 5)
    assert os.listdir(folder) == ["state"]
    program("verify", f"{folder}/state")
    accelerator, model, optimizer = make()
    load_state(accelerator, f"{folder}/state")
    apart = max(abs(a - b) for a, b in zip(straight, losses(model, optimizer, 5)))
    assert os.listdir(folder) == ["state"] and apart < 1e-3, apart
    return f"resumed: losses at most {apart:.1e} apart"


def directory(recipe):
    """What a framework saved by itself, packed and restored by functions of the package, and resumed."""
    def job(folder):
        import frameworks
        import tersor
        run = pathlib.Path(folder, "run")
        run.mkdir()
        resume = frameworks.RECIPES[recipe][1](run)
        straight = resume(run)
        report = tersor.pack(run, f"{folder}/packed/")
        assert report["packed"] and tersor.verify(f"{folder}/packed", against=run).passed, report
        shutil.rmtree(run)
        tersor.unpack(f"{folder}/packed", f"{run}/")
        apart = max(abs(a - b) for a, b in zip(straight, resume(run)))
        assert 0 < apart < 1e-2, apart
        return f"resumed: losses at most {apart:.1e} apart"
    return job


JOBS = {"fsdp2": fsdp2, "ddp": ddp, "record": record, "types": types, "hostile": hostile, "trainer": trainer,
        "lightning": lightning, "accelerate": accelerate,
        "deepspeed": directory("deepspeed: ZeRO-1 on 2 ranks"),
        "megatron": directory("megatron-core: torch_dist")}
NEEDS = {"trainer": "transformers", "lightning": "lightning", "accelerate": "accelerate", "deepspeed": "deepspeed",
         "megatron": "megatron.core"}


def main():
    print(f"torch {torch.__version__}")
    for name in sys.argv[1:] or JOBS:
        try:
            __import__(NEEDS.get(name, "torch"))
        except ImportError:
            print(f"{name}: not installed, left out")
            continue
        folder = os.path.realpath(tempfile.mkdtemp(prefix=f"tersor-{name}-"))
        print(f"{name}: {JOBS[name](folder)}", flush=True)
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
