"""Packed files with coded planes: `pack --entropy`, what reads them, and `convert --plain` back."""
import json
import shutil
import struct
import subprocess

import ml_dtypes
import numpy as np
import pytest

import coded_planes
import packed_text
import reader
from conftest import BINARY, DATA, one_line_error, run_tersor, safetensors_bytes, write_source
from faults import read_log, shim
from test_reader import CHECK, ZEROS, compare, contents, sealed, split, with_long_tree

TINY = DATA / "tiny-gpt" / "checkpoint.safetensors"
TORCH = DATA / "tiny-gpt" / "checkpoint.pt"


def quiet(*args, check=0):
    return run_tersor(*args, "-q", "-q", check=check)


def pack(source, out, *options):
    quiet("pack", source, "-o", out, *options)
    return out


def bf16(x):
    return "BF16", x.shape, x.astype(ml_dtypes.bfloat16).tobytes()


def mixed(folder):
    """Every sort of plane: several pieces, groups that do not divide them, empty, scalar, raw of any type."""
    rng = np.random.default_rng(16)
    w = rng.standard_normal((9, 30001)).astype("f4") * np.float32(0.02)
    master = rng.standard_normal((70, 40)).astype("f4")
    tensors = {
        "a.weight": w, "a.weight.exp_avg": w * np.float32(1e-3), "a.weight.exp_avg_sq": w * w,
        "b.weight": bf16(master), "b.weight.master": master,
        "empty.weight": np.zeros((0, 5), "f4"), "scalar": np.array(1.5, "f4"),
        "same.weight": np.full((300, 30), 0.5, "f4"),
        "nan.weight": np.where(np.arange(2000) % 7 == 0, np.nan, 1.25).astype("f4"),
        "step": ("I64", (), struct.pack("<q", 400)),
        "long": ("I64", (150_000,), rng.integers(0, 1000, 150_000).astype("<i8").tobytes()),
        "bytes": ("U8", (300_001,), bytes(rng.integers(0, 5, 300_001, "u1"))),
        "noise": ("U8", (5000,), rng.bytes(5000)),
        "four": ("F4", (3000,), rng.bytes(1500)), "six": ("F6_E2M3", (400, 4), rng.bytes(1200)),
        "pairs": ("C64", (400,), rng.bytes(3200)), "halves": ("F16", (2001,), rng.bytes(4002)),
    }
    return write_source(folder / "mixed.safetensors", tensors, {"format": "pt", "note": "kept"})


def long_tree(folder):
    """A .pt whose tree is a tensor of the packed file."""
    quiet("unpack", with_long_tree().write(folder / "packed-tree"), "-o", folder / "tree.pt", "--to", "pt")
    return folder / "tree.pt"


def there_and_back(folder, source, *options):
    """Plain, all coded and states coded: each from each of the others, to the same bytes."""
    forms = {"p": [], "e": ["--entropy"], "s": ["--entropy=states"]}
    for name, how in forms.items():
        pack(source, folder / name, *how, *options)
    for start in forms:
        for end, how in forms.items():
            out = folder / f"{start}-{end}"
            if how:
                quiet("pack", folder / start, *how, "-o", out)
            else:
                quiet("convert", folder / start, "--plain", "-o", out)
            assert out.read_bytes() == (folder / end).read_bytes(), f"{start} to {end}"
    for name in forms:
        quiet("unpack", folder / name, "-o", folder / f"{name}.out", "--to", "safetensors")
        quiet("verify", folder / name, "--allow-nonfinite")
        assert (folder / f"{name}.out").read_bytes() == (folder / "p.out").read_bytes()
    return folder / "p", folder / "e", folder / "s"


@pytest.mark.parametrize("source, options", [
    (mixed, ["--min-elements", "1", "--map", "master=weight"]), (mixed, ["--group", "100", "--scale", "f32"]),
    (mixed, ["--weights", "bf16+sr9", "--state", "tight"]), (mixed, ["--weights", "e4m3+trunc8", "--state", "coat"]),
    (TINY, ["--state", "bitsandbytes"]), (TINY, ["--weights", "fp16+fp16", "--state", "flashoptim"]),
    (TINY, ["--state", "gefen"]), (TORCH, []), (long_tree, []), (TORCH, ["--weights", "f32", "--momentum", "bf16", "--variance", "f32"]),
], ids=lambda p: " ".join(p) if isinstance(p, list) else getattr(p, "__name__", getattr(p, "suffix", "")))
def test_plain_and_coded_give_each_other_to_the_byte(tmp_path, source, options):
    path = source(tmp_path) if callable(source) else source
    plain, coded, states = there_and_back(tmp_path, path, *options)
    assert coded.stat().st_size < plain.stat().st_size >= states.stat().st_size


def test_variances_have_contexts_by_row_and_column(tmp_path):
    """Two pieces, groups that follow rows of 100 elements: coded smaller than without their rows and columns."""
    rng = np.random.default_rng(4)
    shape, sizes = (3000, 100), []
    v = np.exp(rng.normal(0, 2, (shape[0], 1)) + rng.normal(0, 2, (1, shape[1])) + rng.normal(0, 0.5, shape))
    for name, x in (("matrix", v), ("vector", v.reshape(-1))):
        tensors = {"w": np.zeros(x.shape, "f4"), "w.exp_avg_sq": x.astype("f4")}
        source = write_source(tmp_path / f"{name}.safetensors", tensors, {"format": "pt"})
        coded = pack(source, tmp_path / name, "--entropy")
        compare(coded, run_tersor)
        quiet("verify", coded)
        header, _ = split(coded.read_bytes())[:2]
        begin, end = json.loads(header)["w.exp_avg_sq::quantized::coded"]["data_offsets"]
        sizes.append(end - begin)
    assert sizes[0] < 0.95 * sizes[1]


def test_contexts_in_shards_come_from_the_scales_of_their_own_tensors(tmp_path):
    quiet("pack", TINY, "-o", tmp_path / "plain.safetensors")
    quiet("pack", TINY, "-o", tmp_path / "coded.safetensors", "--entropy", "--max-shard-size", "200K")
    for name in ("plain.safetensors", "coded.safetensors.index.json"):
        quiet("unpack", tmp_path / name, "-o", tmp_path / f"{name}.out", "--to", "safetensors")
    assert (tmp_path / "coded.safetensors.index.json.out").read_bytes() == \
        (tmp_path / "plain.safetensors.out").read_bytes()


def test_a_reader_from_the_document_alone_reads_coded_files(tmp_path):
    _, coded, states = there_and_back(tmp_path, mixed(tmp_path), "--min-elements", "1", "--map", "master=weight")
    for path in (coded, states):
        compare(path, run_tersor)
    text = packed_text.read(coded)
    assert text["entropy"] == "rans32" and any("narrow" in t for t in text["tensors"])


def test_only_planes_that_do_not_gain_and_weights_stay_plain(tmp_path):
    plain, coded, states = there_and_back(tmp_path, TINY)
    sizes = {name: len(content) for name, (_, _, content) in contents(plain)[1].items()}
    gains = []
    for name, (dtype, _, content) in contents(coded)[1].items():
        if name.endswith("::coded"):
            gains.append(sizes[name.removesuffix("::coded")] - len(content))
        elif sizes[name] >= 512:
            width = reader.BITS[dtype] // 8
            alone = coded_planes.encode(np.frombuffer(content, f"<u{width}"), dtype in ("BF16", "F32"))
            assert len(alone) + 16 + 32 > len(content), name
    assert min(gains) >= 32 and len(gains) > 20
    weights = {name: array for name, array in contents(plain)[1].items() if "::" not in name}
    assert all(array[0] == "BF16" for array in weights.values()) and len(weights) == 29
    assert weights.items() <= contents(states)[1].items()
    assert any(name.endswith("::quantized::coded") for name in contents(states)[1])


def plane_sizes(folder, coded):
    """Bytes of each plane of a coded file, and of its first piece; groups are of 32."""
    quiet("convert", coded, "--plain", "-o", folder / "plain", "-f")
    sizes = {name: len(content) for name, (_, _, content) in contents(folder / "plain")[1].items()}
    return {name: (n, min(n, 16384) if name.endswith("::scales") else n) for name, n in sizes.items()}


def test_order_and_padding_are_those_of_the_document(tmp_path):
    source = mixed(tmp_path)
    for which in ("all", "states"):
        path = pack(source, tmp_path / which, f"--entropy={which}")
        text, _ = split(path.read_bytes())
        header = json.loads(text)
        arrays = {name: array for name, array in header.items() if name != "__metadata__"}
        rank = {dtype: i for i, dtype in enumerate(reader.BITS)}
        order = sorted(arrays, key=lambda name: (-rank[arrays[name]["dtype"]], name.encode()))
        assert order == sorted(arrays, key=lambda name: (arrays[name]["data_offsets"], order.index(name)))
        planes = [t["name"] + suffix for t in packed_text.read(path)["tensors"]
                  for suffix in reader.suffixes_of(t["codec"])["narrow" in t:]]
        assert planes == [name.removesuffix("::coded") for name in arrays]
        sizes, offset, digits = plane_sizes(tmp_path, path), 0, 0
        for name in order:
            array = arrays[name]
            begin, end = array["data_offsets"]
            numbers, n = [begin, end], end - begin
            if name.endswith("::coded"):
                plain, first = sizes[name.removesuffix("::coded")]
                n = n if first < 131072 else plain + plain // 64
                numbers.append(array["shape"][0])
            room = [offset, offset + n, n]
            digits += sum(len(str(wide)) - len(str(number)) for wide, number in zip(room, numbers))
            offset += n
        assert len(text) == (len(text.rstrip(b" ")) + digits + 7) // 8 * 8


@pytest.mark.parametrize("compressible", [False, True])
def test_random_planes_do_not_grow(tmp_path, compressible):
    """Many short ones of all sizes, some around where a trial ends; with a plane that gains, and without."""
    rng = np.random.default_rng(5)
    lengths = [*rng.integers(200, 3000, 1500), *range(500, 530), 131071, 131072, 131100, 262144, 300001, 1048577]
    tensors = {f"layer.{i}.noise": ("U8", (int(n),), rng.bytes(n)) for i, n in enumerate(lengths)}
    tensors |= {f"wide.{i}": ("I64", (n,), rng.bytes(8 * n)) for i, n in enumerate((70, 1000, 9000, 17000))}
    tensors |= {f"real.{i}": ("F32", (n,), rng.bytes(4 * n)) for i, n in enumerate((200, 4000, 33000, 300000))}
    if compressible:
        tensors["a.weight"] = np.ones(4000, "f4")
    source = write_source(tmp_path / "source", tensors, {"format": "pt"})
    sizes = [pack(source, tmp_path / name, "--keep", "noise|wide|real", *how).stat().st_size
             for name, how in (("plain", []), ("coded", ["--entropy"]))]
    assert sizes[1] <= 1.001 * sizes[0] + 200
    compare(tmp_path / "coded", run_tersor)


def test_one_tensor_is_read_without_the_others(tmp_path):
    """The model alone, of a file whose other planes are damaged, and the bytes that this reads."""
    rng = np.random.default_rng(3)
    tensors = {name: rng.standard_normal(600_000).astype("f4") for name in ("w", "w.exp_avg")}
    path = pack(write_source(tmp_path / "in", tensors), tmp_path / "e", "--entropy")
    text, data = split(path.read_bytes())
    header = json.loads(text)
    begin, end = header["w.exp_avg::quantized::coded"]["data_offsets"]
    data = data[:begin + 48] + bytes(end - begin - 48) + data[end:]
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    quiet("unpack", path, "-o", tmp_path / "all", check=3)
    log = tmp_path / "log"
    run_tersor("unpack", path, "--only", "weights", "-o", tmp_path / "w", "-q", "-q", env=shim(path, log=log), check=0)
    sizes = [np.diff(header[f"w{plane}::coded"]["data_offsets"])[0] for plane in ("", "::error_bits")]
    got = sum(event.n for event in read_log(log) if event.mark == "<" and "read" in event.call and event.n > 0)
    assert sum(sizes) < got < sum(sizes) + 2 * len(text) + 50_000


def test_threads_give_the_same_bytes(tmp_path):
    source = mixed(tmp_path)
    found = {pack(source, tmp_path / f"{n}", "--entropy", "-j", n).read_bytes() for n in "125"}
    assert len(found) == 1


def test_generation_and_figures_stay(tmp_path):
    plain, coded, _ = there_and_back(tmp_path, TINY)
    texts = [packed_text.read(path) for path in (plain, coded)]
    assert texts[1].pop("entropy") and texts[0] == texts[1] and texts[0]["generation"] == 1
    assert "87 tensors compared: 0 differ" in run_tersor("diff", plain, coded, check=0).stdout
    report = json.loads(run_tersor("inspect", coded, "--json", check=0).stdout)
    assert report["plain_nbytes"] == len(split(plain.read_bytes())[1])
    assert "entropy coded" in run_tersor("inspect", coded, check=0).stdout
    assert "entropy" not in run_tersor("inspect", plain, check=0).stdout


def test_parts_of_pieces_are_read(tmp_path):
    """`diff` takes 65,536 elements at a time, of groups that the pieces are cut by."""
    source = mixed(tmp_path)
    plain, coded, states = there_and_back(tmp_path, source, "--group", "100")
    wanted = run_tersor("diff", "-v", source, plain).stdout
    assert "differ" in wanted
    for path in (coded, states):
        assert run_tersor("diff", "-v", source, path).stdout == wanted
        assert "0 differ" in run_tersor("diff", plain, path, check=0).stdout


def test_shards_of_coded_planes(tmp_path):
    source = mixed(tmp_path)
    for name, how in {"p": [], "e": ["--entropy"], "s": ["--entropy=states"]}.items():
        (tmp_path / name).mkdir()
        pack(source, tmp_path / name / "x.safetensors", "--max-shard-size", "400K", *how)
    index = {name: tmp_path / name / "x.safetensors.index.json" for name in "pes"}
    assert len(list((tmp_path / "e").iterdir())) == len(list((tmp_path / "p").iterdir())) > 4
    (tmp_path / "again").mkdir()
    quiet("convert", index["e"], "--plain", "-o", tmp_path / "again" / "x.safetensors", "--max-shard-size", "400K")
    for path in (tmp_path / "p").iterdir():
        assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes()
    for name in "pes":
        quiet("verify", index[name], "--allow-nonfinite")
        quiet("unpack", index[name], "-o", tmp_path / f"{name}.out")
    assert (tmp_path / "e.out").read_bytes() == (tmp_path / "p.out").read_bytes() == (tmp_path / "s.out").read_bytes()
    total = json.loads(index["e"].read_text())["metadata"]["total_size"]
    shards = [path for path in (tmp_path / "e").iterdir() if path.suffix == ".safetensors"]
    assert total == sum(len(split(path.read_bytes())[1]) for path in shards)
    assert list(reader.read(index["e"]).tensors) == list(reader.read(index["p"]).tensors)


def test_weights_beside_a_coded_file_are_plain(tmp_path):
    for name, how in {"p": [], "e": ["--entropy"]}.items():
        (tmp_path / name).mkdir()
        pack(TINY, tmp_path / name / "rest", "--model", tmp_path / name / "model.safetensors", *how)
    model = (tmp_path / "e" / "model.safetensors").read_bytes()
    assert model == (tmp_path / "p" / "model.safetensors").read_bytes()
    assert (tmp_path / "e" / "rest").stat().st_size < (tmp_path / "p" / "rest").stat().st_size
    compare(tmp_path / "e" / "rest", run_tersor)
    # There and back, and into one file.
    (tmp_path / "q").mkdir()
    quiet("pack", tmp_path / "p" / "rest", "--entropy", "-o", tmp_path / "q" / "rest", "--model",
          tmp_path / "q" / "model.safetensors")
    assert (tmp_path / "q" / "rest").read_bytes() == (tmp_path / "e" / "rest").read_bytes()
    quiet("convert", tmp_path / "e" / "rest", "--plain", "-o", tmp_path / "one")
    assert (tmp_path / "one").read_bytes() == pack(TINY, tmp_path / "other").read_bytes()


def test_directories_are_packed_coded(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    shutil.copy(TINY, folder / "model.safetensors")
    (folder / "text").write_text("text")
    quiet("pack", folder, "-o", tmp_path / "out", "--entropy")
    quiet("pack", folder, "-o", tmp_path / "plain")
    sizes = [sum(p.stat().st_size for p in (tmp_path / name).iterdir()) for name in ("out", "plain")]
    assert sizes[0] < sizes[1]
    quiet("verify", tmp_path / "out")
    quiet("unpack", tmp_path / "out", "-o", tmp_path / "back")
    quiet("unpack", tmp_path / "plain", "-o", tmp_path / "same")
    assert (tmp_path / "back" / "model.safetensors").read_bytes() == (tmp_path / "same" / "model.safetensors").read_bytes()


def test_replay_reads_coded_states(tmp_path):
    plain, coded, _ = there_and_back(tmp_path, TINY)
    for name, path in (("p", plain), ("e", coded)):
        quiet("replay", path, DATA / "tiny-gpt" / "recording", "--count", "2", "-o", tmp_path / f"after-{name}")
    assert (tmp_path / "after-p").read_bytes() == (tmp_path / "after-e").read_bytes()


def test_report_has_the_bytes_before_and_after(tmp_path):
    done = run_tersor("pack", TINY, "--entropy", "-o", tmp_path / "e", "--json=-", "-q", check=0)
    report, plain = json.loads(done.stdout), pack(TINY, tmp_path / "p")
    assert report["plain_nbytes"] == plain.stat().st_size
    assert report["header_nbytes"] + report["data_nbytes"] == (tmp_path / "e").stat().st_size
    stored = {t["name"]: t["stored_nbytes"] for t in report["tensors"]}
    assert sum(stored.values()) == report["data_nbytes"]
    assert "entropy coding" in run_tersor("pack", TINY, "--entropy", "-o", tmp_path / "e", "-f", check=0).stdout
    done = run_tersor("pack", plain, "--entropy", "-o", tmp_path / "f", "--json=-", "-q", check=0)
    report = json.loads(done.stdout)
    assert (report["nbytes"], report["plain_nbytes"]) == ((tmp_path / "e").stat().st_size, plain.stat().st_size)
    assert report["parameters"] == 84_288 and report["generation"] == 1


def test_standard_streams(tmp_path):
    coded = pack(TINY, tmp_path / "e", "--entropy")
    with open(coded, "wb") as out:
        subprocess.run(f"cat '{TINY}' | '{BINARY}' pack - --entropy -o - -q -q", shell=True, stdout=out, check=True)
    assert coded.read_bytes() == pack(TINY, tmp_path / "f", "--entropy").read_bytes()


def test_dry_run_writes_nothing(tmp_path):
    plain = pack(TINY, tmp_path / "p")
    for args in (["pack", TINY, "--entropy"], ["pack", plain, "--entropy"], ["convert", plain, "--plain"]):
        assert "planned" in run_tersor(*args, "-o", tmp_path / "x", "--dry-run", check=0).stdout
    assert [path.name for path in tmp_path.iterdir()] == ["p"]


@pytest.mark.parametrize("args, status, text", [
    (["pack", TINY, "--entropy=some"], 2, "expected all or states"),
    (["pack", "PACKED", "--entropy", "--weights", "bf16"], 2, "keeps its codecs"),
    (["pack", "PACKED"], 3, "is packed already"), (["convert", TINY, "--plain"], 3, "is not a packed file"),
    (["convert", "PACKED", "--plain", "--to", "pt"], 2, "--plain and --to exclude each other"),
    (["convert", "PACKED", TINY, "--plain"], 2, "--plain takes one packed file"),
    (["pack", __file__, "--entropy"], 3, "test_entropy.py: "),
])
def test_what_does_not_go_together_is_refused(tmp_path, args, status, text):
    plain = pack(TINY, tmp_path / "p")
    done = run_tersor(*[plain if arg == "PACKED" else arg for arg in args], "-o", tmp_path / "x", check=status)
    assert text in done.stderr and not (tmp_path / "x").exists()


def test_a_name_that_ends_as_a_coded_plane_is_refused(tmp_path):
    source = write_source(tmp_path / "in", {"w::coded": np.ones(20, "f4")})
    assert "reserve" in one_line_error(quiet("pack", source, "-o", tmp_path / "x", check=3))


# ---- Damaged and hostile files -----------------------------------------------------------------

def sample(folder):
    """A coded file of one weight of two pieces, with its header's text and its data."""
    w = np.random.default_rng(5).standard_normal(300_000).astype("f4")
    path = pack(write_source(folder / "in", {"w": w}), folder / "e", "--entropy", "--weights", "bf16")
    text, data = split(path.read_bytes())
    assert contents(path)[1].keys() == {"w::coded"} and len(data) > 390_000
    return text, bytearray(data)


def entry(data, piece):
    return struct.unpack_from("<QQ", data, 16 * piece)


def set_end(piece, change):
    def edit(data):
        struct.pack_into("<Q", data, 16 * piece, change(data) & (1 << 64) - 1)
    return edit


def flip(at):
    def edit(data):
        data[at(data)] ^= 1
    return edit


def hash_of_another(data):
    struct.pack_into("<Q", data, 8, entry(data, 1)[1])


def swapped(data):
    data[0:16], data[16:32] = data[16:32], data[0:16]


DAMAGED = {
    "end past the array": (set_end(0, lambda d: len(d) + 1), "piece 1 of 2: its place"),
    "end far past it": (set_end(0, lambda d: (1 << 64) - 1), "piece 1 of 2: its place"),
    "end in the index": (set_end(0, lambda d: 31), "piece 1 of 2: its place"),
    "end of nothing": (set_end(0, lambda d: 32), "piece 1 of 2: "),
    "bytes behind the last": (set_end(1, lambda d: len(d) - 4), "piece 2 of 2: its place"),
    "last before the first": (set_end(1, lambda d: entry(d, 0)[0] - 4), "piece 2 of 2: its place"),
    "a word too many": (set_end(0, lambda d: entry(d, 0)[0] + 4), "piece 1 of 2: "),
    "a word less": (set_end(0, lambda d: entry(d, 0)[0] - 4), "piece 1 of 2: "),
    "entries swapped": (swapped, "piece 1 of 2: "),
    "hash of another piece": (hash_of_another, "piece 1 of 2: does not have its hash"),
    "a bit of a hash": (flip(lambda d: 24), "piece 2 of 2: does not have its hash"),
    "a bit of a head": (flip(lambda d: 32), "piece 1 of 2: "),
    "a bit of a raw stream": (flip(lambda d: 5000), "piece 1 of 2: does not have its hash"),
    "a bit of the last word": (flip(lambda d: len(d) - 1), "piece 2 of 2: "),
}


@pytest.mark.parametrize("edit, text", DAMAGED.values(), ids=DAMAGED)
def test_damage_names_the_piece(tmp_path, edit, text):
    header, data = sample(tmp_path)
    edit(data)
    path = tmp_path / "damaged"
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)
    line = one_line_error(run_tersor("verify", path, check=3))
    assert "w::coded: data is damaged" in line and text in line
    quiet("unpack", path, "-o", tmp_path / "x", check=3)
    quiet("convert", path, "--plain", "-o", tmp_path / "x", check=3)
    assert not (tmp_path / "x").exists()
    with pytest.raises(reader.ReaderError):
        reader.read(path)


def rewritten(header, data, change):
    """The file with another header, whose check is right."""
    whole = json.loads(header)
    text = packed_text.unfold(json.loads(whole["__metadata__"]["tersor"]), whole)
    data = change(whole, text, data) or data
    whole["__metadata__"] |= {"tersor": json.dumps(packed_text.fold(text)), "tersor_check": ZEROS}
    return sealed(json.dumps(whole, separators=(",", ":")).encode(), bytes(data))


def add_plain(whole, text, data):
    whole["w"] = {"dtype": "BF16", "shape": [300_000], "data_offsets": [len(data), len(data) + 600_000]}
    return data + bytes(600_000)


def cut(whole, text, data):
    whole["w::coded"] |= {"shape": [31], "data_offsets": [0, 31]}
    return data[:31]


def huge(whole, text, data):
    text["tensors"][0]["shape"] = [1 << 40, 1 << 20]


def member(**members):
    def change(whole, text, data):
        tensors = text.pop("tensors")
        for name, value in members.items():
            text.pop(name, None)
            if value is not None:
                text[name] = value
        text["tensors"] = tensors
    return change


def coded(**members):
    return lambda whole, text, data: whole["w::coded"].update(members)


HEADERS = {
    "unknown coder": (member(entropy="rans33"), "unknown entropy coder rans33"),
    "coder as a number": (member(entropy=32), "entropy is not a name"),
    "coder missing": (member(entropy=None), "no plane w"),
    "another type": (coded(dtype="I8"), "dtype or shape of coded plane"),
    "another rank": (lambda w, t, d: w["w::coded"].update(shape=[1, len(d)]), "dtype or shape of coded plane"),
    "plain beside coded": (add_plain, "is not a plane"),
    "shorter than the index": (cut, "does not fit"),
    "a shape too large": (huge, "does not fit"),
    "more elements than pieces": (lambda w, t, d: t["tensors"][0].update(shape=[600_000]), "damaged"),
    "fewer elements": (lambda w, t, d: t["tensors"][0].update(shape=[200_000]), "damaged"),
    "another codec": (lambda w, t, d: t["tensors"][0].update(codec="fp16"), "damaged"),
}


@pytest.mark.parametrize("change, text", HEADERS.values(), ids=HEADERS)
def test_headers_that_do_not_fit_coded_planes_are_refused(tmp_path, change, text):
    path = tmp_path / "hostile"
    path.write_bytes(rewritten(*sample(tmp_path), change))
    line = one_line_error(run_tersor("verify", path, check=3))
    assert any(part in line for part in text.split("|")), line
    with pytest.raises(reader.ReaderError):
        reader.read(path)


def test_entropy_without_a_coded_plane_is_refused(tmp_path):
    path = pack(write_source(tmp_path / "in", {"w": np.ones(20, "f4")}), tmp_path / "p", "--entropy")
    header, data = split(path.read_bytes())
    assert "entropy" not in json.loads(contents(path)[0]["tersor"])
    path.write_bytes(rewritten(header, data, member(entropy="rans32")))
    assert "without a coded plane" in one_line_error(run_tersor("verify", path, check=3))
    with pytest.raises(reader.ReaderError):
        reader.read(path)


def test_plane_hash_is_not_that_of_the_pieces(tmp_path):
    """All pieces sound, of another plane."""
    path = tmp_path / "x"
    path.write_bytes(rewritten(*sample(tmp_path), lambda w, t, d: t["tensors"][0].update(xxh3=["0" * 16])))
    assert "is damaged: found hash" in one_line_error(run_tersor("verify", path, check=3))
    assert "found hash" in one_line_error(quiet("convert", path, "--plain", "-o", tmp_path / "y", check=3))


def test_bench_of_a_file_codes_the_bytes_that_pack_writes(tmp_path):
    """Without the index, of 16 bytes for each piece."""
    w = np.random.default_rng(5).standard_normal((300, 1000)).astype("f4")
    source = write_source(tmp_path / "s.safetensors", {"w": w, "w.exp_avg": w**9, "w.exp_avg_sq": w**4}, {})
    plain, coded = (pack(source, tmp_path / name, *options)
                    for name, options in (("plain", ()), ("coded", ("--entropy",))))
    report = json.loads(run_tersor("bench", "--entropy", plain, "--repeats", "1", "-j1", "--json").stdout)
    header = json.loads(split(coded.read_bytes())[0])
    measured = {p["plane"]: round(p["coded_bytes_per_element"] * p["elements"]) for p in report["planes"]}
    for plane, name in (("weights", "w"), ("momenta", "w.exp_avg::quantized"),
                        ("variances", "w.exp_avg_sq::quantized")):
        first, last = header[f"{name}::coded"]["data_offsets"]
        assert measured[plane] == last - first - 2 * 16


def test_bench_refuses_files_without_packed_state(tmp_path):
    assert "no packed weights" in one_line_error(run_tersor("bench", "--entropy", TINY, check=3))
    assert "--entropy only" in one_line_error(run_tersor("bench", TINY, check=2))
    assert "--elements" in one_line_error(run_tersor("bench", "--entropy", TINY, "--elements", "2048", check=2))
