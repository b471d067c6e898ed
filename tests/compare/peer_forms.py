"""What other programs keep two moments as, for forms.py: their libraries' own code, or formulas where that needs a GPU.

A form is `bits(shape)`, of both moments of an element, and `back(m, v)`, what comes back of FP32 arrays.  A library's
has `encode(x, signed)` and `decode(planes)` of flat torch tensors; where these run as in training on a CPU, `timed()`
is the form whose speed is measured.  Every tensor is quantized, also those of less than 4,096 elements, which most of
these programs leave in FP32.
"""
import functools
import math

import numpy as np

F32 = np.float32
TINY = F32(1e-37)
DYNAMIC4 = np.array([-.8875, -.6625, -.4375, -.2125, -.0775, -.0325, -.0055, 0, .0055, .0325, .0775, .2125, .4375,
                     .6625, .8875, 1], F32)
LINEAR4 = np.arange(1, 17, dtype=F32) / 16
E2M1 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6], F32)
E4M3 = np.array([m * 2.0 ** -9 for m in range(8)] +
                [(1 + m / 8) * 2.0 ** e for e in range(-6, 9) for m in range(8)][:-1], F32)


def near(x, levels):
    return levels[np.searchsorted((levels[1:] + levels[:-1]) / 2, x)]


def in_groups(x, n, code):
    """code(groups as rows, their largest magnitudes), with zeros behind the last element."""
    rows = np.pad(x.ravel(), (0, -x.size % n)).reshape(-1, n)
    back = code(rows, np.maximum(abs(rows).max(1, keepdims=True), TINY))
    return back.ravel()[:x.size].reshape(x.shape)


def four_bits(x, levels):
    return in_groups(x, 128, lambda rows, most: near(rows / most, levels) * most)


def rank1(v):
    """A variance relative to the smaller of its row's and its column's largest; vectors in groups."""
    if v.ndim != 2:
        return four_bits(v, LINEAR4)
    scale = np.maximum(np.minimum(v.max(1, keepdims=True), v.max(0, keepdims=True)), TINY)
    return near(v / scale, LINEAR4) * scale


def rank1_bits(shape):
    scales = sum(shape) if len(shape) == 2 else shape[0] / 128
    return 4 + 32 / 128 + 4 + 32 * scales / math.prod(shape)


def fp4(x, levels, micro):
    """E2M1 with MX's powers of two for 32, rounded up, or with NVFP4's E4M3 for 16 below a scale of the tensor."""
    def code(rows, most):
        if micro:
            scale = np.exp2(np.ceil(np.log2(most / 6)))
        else:
            whole = np.maximum(most.max() / F32(6 * 448), TINY)
            scale = np.maximum(near(most / 6 / whole, E4M3), E4M3[1]) * whole
        return np.copysign(near(abs(rows) / scale, levels), rows) * scale
    return in_groups(x, 32 if micro else 16, code)


def fp4_pair(micro):
    """m, and the root of v without a code for 0."""
    return lambda m, v: (fp4(m, E2M1, micro), fp4(np.sqrt(v), E2M1[1:], micro) ** 2)


class Formula:
    timed = None

    def __init__(self, bits, back):
        self.bits, self.back = bits if callable(bits) else lambda shape: bits, back


class Library:
    """encode and decode take flat tensors whose length is a multiple of the block."""

    def __init__(self, bits, block, encode, decode, timed=None):
        self.bits, self.block, self.encode, self.decode = lambda shape: bits, block, encode, decode
        self.timed = timed and functools.cache(timed)

    def back(self, m, v):
        import torch

        def one(x, signed):
            flat = torch.from_numpy(np.pad(x.ravel(), (0, -x.size % self.block)))
            return self.decode(self.encode(flat, signed)).numpy()[:x.size].reshape(x.shape)
        return one(m, True), one(v, False)


def bitsandbytes():
    from bitsandbytes import functional as F
    maps = {signed: F.create_dynamic_map(signed=signed) for signed in (True, False)}

    def decode(planes):
        return F.dequantize_blockwise(planes[0], absmax=planes[1].absmax, code=planes[1].code, blocksize=256)
    return Library(2 * (8 + 32 / 256), 256, lambda x, signed: F.quantize_blockwise(x, code=maps[signed], blocksize=256),
                   decode, bitsandbytes)


def torchao(bits, block, compiled=lambda function: function):
    import torch
    from torchao.optim.subclass_4bit import OptimState4bit
    from torchao.optim.subclass_8bit import OptimState8bit
    state = {4: OptimState4bit, 8: OptimState8bit}[bits]
    copy = compiled(lambda target, x: target.copy_(x))
    # Its optimizers are compiled, once for every shape: too slow for all shapes of a state.
    return Library(2 * (bits + 32 / block), block,
                   lambda x, signed: copy(state.zeros(x.shape, signed=signed, block_size=block), x),
                   compiled(lambda planes: planes.dequantize()),
                   lambda: torchao(bits, block, functools.partial(torch.compile, dynamic=False)))


def flashoptim():
    """Its kernels in Triton's interpreter (TRITON_INTERPRET), which needs no GPU and says nothing of speed."""
    import torch
    from flashoptim import optimizers as its
    block = 1 << 16

    def run(kernel, n, *args):
        kernel.fn[(-(-n // block),)](*args, BLOCK_SIZE_N=block)

    def encode(x, signed):
        n, most = x.numel(), 127.0 if signed else 255.0
        codes = torch.empty(n, dtype=torch.int8 if signed else torch.uint8)
        scales = torch.empty(-(-n // 32), dtype=torch.float16)
        run(its._triton_quantize_kernel, n, x, codes, scales, n, most, its.tl.int8 if signed else its.tl.uint8, 32,
            not signed, signed)
        return codes, scales, signed, most

    def decode(planes):
        codes, scales, signed, most = planes
        x, n = torch.empty(codes.numel()), codes.numel()
        run(its._triton_dequantize_kernel, n, codes, scales, x, n, most, 32, not signed, signed)
        return x
    return Library(2 * (8 + 16 / 32), 32, encode, decode)


# Libraries are imported when their form is asked for.
PEERS = {
    "FlashOptim": flashoptim,
    "bitsandbytes": bitsandbytes,
    "torchao, 8 bits": functools.partial(torchao, 8, 256),
    "torchao, 4 bits": functools.partial(torchao, 4, 128),
    "lpmm, 4 bits": lambda: Formula(rank1_bits, lambda m, v: (four_bits(m, DYNAMIC4), rank1(v))),
    "NVFP4": lambda: Formula(2 * (4 + 8 / 16), fp4_pair(False)),
    "MXFP4": lambda: Formula(2 * (4 + 8 / 32), fp4_pair(True)),
}
