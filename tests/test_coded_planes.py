"""Coded planes: the library against helpers/coded_planes.py, which knows docs/internals/format.md, section 18, only."""
import pathlib
import re
import subprocess

import numpy as np
import pytest
import xxhash

from conftest import BINARY, VECTORS
from helpers import coded_planes
from helpers.coded_planes import Refused

FILTER = pathlib.Path(BINARY).parent / "tests" / "test_entropy"
CODED = (VECTORS / "coded.txt").read_text()


def filtered(what, data, width, rotated, n, **kwargs):
    return subprocess.run([FILTER, what, str(width), str(int(rotated)), str(n)], input=bytes(data),
                          capture_output=True, check=False, **kwargs)


def filtered_codes(what, data, group, columns, first=0, row=0):
    """`data`: scales and what is coded."""
    scales, piece, n = data
    numbers = n, first, columns, row, group, len(scales)
    sort = "log8" if scales.itemsize == 4 else "sqrt8"
    return subprocess.run([FILTER, what, *map(str, numbers), sort], input=scales.tobytes() + bytes(piece),
                          capture_output=True, check=False)


def block(name):
    """The rows of one block of coded.txt, without the line of its columns."""
    rows = re.search(rf"^\[{name}\]\n(.*?)(?:\n#|\Z)", CODED, re.S | re.M)[1].strip().splitlines()
    return rows[1:]


def expand(text):
    """Bytes in hexadecimal, of which those before *k stand k times: ab*3 01 is ab ab ab 01."""
    parts = [part.partition("*") for part in text.split()]
    return b"".join(bytes.fromhex(part) * int(times or 1) for part, _, times in parts)


def vectors():
    for line in re.sub(r"\n +", " ", "\n".join(block("coded"))).splitlines():
        kind, plain, coded = (cell.strip() for cell in line.split("|"))
        yield pytest.param(int(kind[0]), "r" in kind, expand(plain), expand(coded), id=line[:24].strip())


def generated(n):
    x, out = 1, np.empty(n, np.uint8)
    for i in range(n):
        x = (6364136223846793005 * x + 1442695040888963407) % 2**64
        out[i] = 8 * bin(x >> 33).count("1") + (x >> 30) % 8
    return out


@pytest.mark.parametrize("width, rotated, plain, coded", vectors())
def test_vectors(width, rotated, plain, coded):
    elements = np.frombuffer(plain, f"<u{width}")
    assert coded_planes.encode(elements, rotated) == coded
    assert (coded_planes.decode(coded, width, rotated, len(elements)) == elements).all()
    assert filtered("encode", plain, width, rotated, len(elements)).stdout == coded
    assert filtered("decode", coded, width, rotated, len(elements)).stdout == plain


@pytest.mark.parametrize("line", block("generated"))
def test_generated_vectors(line):
    kind, n, nbytes, digest = line.split()
    width, rotated, n = int(kind[0]), "r" in kind, int(n)
    elements = generated(width * n).view(f"<u{width}")
    coded = coded_planes.encode(elements, rotated)
    assert (len(coded), xxhash.xxh3_64_hexdigest(coded)) == (int(nbytes), digest)
    assert filtered("encode", elements.tobytes(), width, rotated, n).stdout == coded


def variance_case():
    """That of 18.6: 20,000 codes, 64 columns, flat groups of 32."""
    i = np.arange(20000)
    codes = (generated(20000).astype(int) * (1 + i % 64) // 64).astype(np.uint8)
    return codes, (0x7f00 + 16 * (5 * np.arange(625) % 64)).astype("<u2")


@pytest.mark.parametrize("line", block("contexts"))
def test_vectors_with_contexts(line):
    kind, nbytes, digest = line.split()
    codes, scales = variance_case()
    variance = coded_planes.Variance(np.repeat(scales, 32), 0, 64)
    if kind == "log8":
        scales = (2**15 * scales.astype(int) + np.arange(625) % 16).astype("<u4")
        variance = coded_planes.LogVariance(np.repeat(scales, 32), 0, 64)
    coded = coded_planes.encode_codes(codes, variance)
    assert (len(coded), xxhash.xxh3_64_hexdigest(coded), coded[0]) == (int(nbytes), digest, 3)
    assert (coded_planes.decode(coded, 1, False, len(codes), variance) == codes).all()
    assert filtered_codes("encode-codes", (scales, codes, len(codes)), 32, 64).stdout == coded
    assert filtered_codes("decode-codes", (scales, coded, len(codes)), 32, 64).stdout == codes.tobytes()


def rank_one(rng, shape, group, noise=0.5):
    """Codes and scales of sqrt8 for variances near a product of rows and columns; groups in rows."""
    v = np.exp(rng.normal(0, 2, (shape[0], 1)) + rng.normal(0, 2, (1, shape[1])) + rng.normal(0, noise, shape))
    blocks = np.sqrt(v).reshape(shape[0], -1, group)
    bits = (blocks.max(-1).astype("<f4").view("<u4") + 0x7fff) >> 15
    largest = np.repeat((bits << 15).astype("<u4").view("<f4"), group, 1)
    codes = np.rint(255 * np.sqrt(v) / largest).astype(np.uint8)
    return codes.reshape(-1), bits.astype("<u2").reshape(-1)


def test_contexts_of_a_piece_in_the_middle_of_a_tensor():
    """Where a piece begins and ends within rows and groups; and what contexts gain."""
    shape, group, first, n = (300, 120), 30, 1234, 34000
    codes, scales = rank_one(np.random.default_rng(3), shape, group)
    at = slice(first, first + n)
    variance = coded_planes.Variance(np.repeat(scales, group)[at], first, shape[1])
    coded = filtered_codes("encode-codes", (scales[first // group:], codes[at], n), group, shape[1], first,
                           shape[1]).stdout
    assert coded[0] == 3
    assert coded == coded_planes.encode_codes(codes[at], variance)
    assert (coded_planes.decode(coded, 1, False, n, variance) == codes[at]).all()
    assert len(coded) < 0.97 * len(coded_planes.encode(codes[at], False))


@pytest.mark.parametrize("shape, group, first, n, row", [
    ((300, 120), 40, 1200, 30000, 0), ((240, 500), 64, 320, 110000, 0), ((400, 330), 110, 660, 110000, 330)])
def test_contexts_of_codes_of_log8(shape, group, first, n, row):
    """All ranges and codes, scales of zero, subnormal and negative ones among them, in any part of a tensor."""
    rng = np.random.default_rng(5)
    count = shape[0] * shape[1]
    i = np.arange(count)
    groups = i // row * -(-row // group) + i % row // group if row else i // group
    v = rng.normal(0, 30, (shape[0], 1)) + rng.normal(0, 30, (1, shape[1])) + rng.normal(0, 4, shape)
    levels = v.reshape(-1)
    top = np.array([levels[groups == g].max() for g in range(groups[-1] + 1)])
    u = ((2000 + top).astype(np.int64) << 19) + rng.integers(4, 12, len(top))
    u[5::50] = rng.integers(0, 2**32, len(u[5::50]))
    r = np.array([4, 8, 12, 16, 24, 32, 40, 48, 64, 80, 96, 128, 160, 208, 272, 384])[u % 16]
    codes = np.clip(255 - (top[groups] - levels) * 256 / r[groups], 0, 255).astype(np.uint8)
    at, begin = slice(first, first + n), groups[first]
    scales = u.astype("<u4")
    variance = coded_planes.LogVariance(scales[groups[at]], first, shape[1])
    coded = filtered_codes("encode-codes", (scales[begin:groups[first + n - 1] + 1], codes[at], n), group, shape[1],
                           first, row).stdout
    assert coded == coded_planes.encode_codes(codes[at], variance)
    assert coded[0] == 3 and len(coded) < 0.95 * len(coded_planes.encode(codes[at], False))
    assert (coded_planes.decode(coded, 1, False, n, variance) == codes[at]).all()
    assert filtered_codes("decode-codes", (scales[begin:groups[first + n - 1] + 1], coded, n), group, shape[1],
                          first, row).stdout == codes[at].tobytes()


@pytest.mark.parametrize("rows, mode", [(9, 3), (8, 2)])
def test_contexts_need_eight_elements_for_each_row_and_column(rows, mode):
    v, scales = rank_one(np.random.default_rng(2), (rows, 1000), 1000, 0)
    variance = coded_planes.Variance(np.repeat(scales, 1000), 0, 1000)
    coded = filtered_codes("encode-codes", (scales, v, len(v)), 1000, 1000, row=1000).stdout
    assert coded[0] == mode and coded == coded_planes.encode_codes(v, variance)


def bell(rng, n, spread):
    return np.clip(rng.normal(128, spread, n), 0, 255).astype(np.uint8)


SHAPES = {
    "narrow bell": lambda rng, n: bell(rng, n, 1),
    "wide bell": lambda rng, n: bell(rng, n, 60),
    "nearly constant": lambda rng, n: (rng.random(n) > 0.999).astype(np.uint8) * 255,
    "255 symbols": lambda rng, n: rng.integers(0, 255, n).astype(np.uint8),
    "growing": lambda rng, n: (255 * np.sort(rng.random(n)) ** 3).astype(np.uint8),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_library_and_document_agree(shape):
    rng = np.random.default_rng(len(shape))
    for width, rotated, n in ((1, False, 70000), (2, True, 33000), (2, False, 129), (4, True, 5001), (8, False, 999)):
        elements = SHAPES[shape](rng, width * n).view(f"<u{width}")
        coded = filtered("encode", elements.tobytes(), width, rotated, n).stdout
        assert coded == coded_planes.encode(elements, rotated)
        assert (coded_planes.decode(coded, width, rotated, n) == elements).all()
        assert filtered("decode", coded, width, rotated, n).stdout == elements.tobytes()


def test_bf16_weights_lose_most_of_their_exponent():
    weights = np.random.default_rng(1).normal(0, 0.02, 262144).astype("<f4").view("<u4") >> 16
    coded = filtered("encode", weights.astype("<u2").tobytes(), 2, True, len(weights)).stdout
    exponents = np.bincount(weights >> 7 & 255)
    p = exponents[exponents > 0] / len(weights)
    entropy = -(p * np.log2(p)).sum() / 8
    assert 1 + entropy < len(coded) / len(weights) < 1 + 1.015 * entropy


def test_damage_is_refused_by_both_alike():
    """A bit of each byte flips: both refuse it, or, where other elements come out, both give the same."""
    rng = np.random.default_rng(7)
    n = 700
    good = coded_planes.encode(bell(rng, n, 3), False)
    for at in range(len(good)):
        bad = bytearray(good)
        bad[at] ^= 1 << rng.integers(8)
        result = filtered("decode", bad, 1, False, n)
        try:
            assert result.stdout == coded_planes.decode(bad, 1, False, n).tobytes()
        except Refused:
            assert result.returncode == 1 and result.stderr
