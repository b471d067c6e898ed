"""Second implementation of replaying, in numpy: what docs/replay.md says and nothing else.

Independent of the C code on purpose.  Every float32 operation rounds once; fma() is the only fused
one.  Compressed states go through the codecs of oracle.py.

    h = hyper("adamw", lr=1e-3, beta2=0.95)         with defaults
    state = {"weight": w, "momentum": m, "variance": v}      float32, flat
    state = step("adamw", h, t, fresh, g, state)             in FP32
    codings = {"weight": ("bf16+ulp8", 32, "e8m8"), ...}     codec, group, scale
    planes = packed_step("adamw", h, t, fresh, g, planes, codings, seed, names)

`flashoptim=True` steps as FlashOptim's kernels do: in another order, and with hyperparameters in FP32.
"""
import math

import numpy as np
import oracle

F32 = np.float32
DEFAULTS = {
    "sgd": {}, "sgdw": {}, "adam": {"beta2": 0.999}, "adamw": {"beta2": 0.999, "weight_decay": 0.01},
    "lion": {"beta2": 0.99},
}


def hyper(optimizer, **given):
    h = {"beta1": 0.9, "eps": 1e-8, "weight_decay": 0.0, "momentum": 0.0, "dampening": 0.0,
         "nesterov": 0, "decouple_lr": 0, **DEFAULTS[optimizer], **given}
    return {"initial_lr": h["lr"], **h}


def parts(optimizer, h):
    """The parts that the optimizer keeps."""
    if optimizer in ("adam", "adamw"):
        return ("weight", "momentum", "variance")
    return ("weight", "momentum") if optimizer == "lion" or h["momentum"] else ("weight",)


def fma(a, b, c):
    """RN(a * b + c): the product is exact in float64, the sum is rounded to odd there."""
    a, b, c = np.broadcast_arrays(*(np.asarray(x, np.float64) for x in (a, b, c)))
    with np.errstate(all="ignore"):
        product = a * b
        total = product + c
        back = total - product
        error = (product - (total - back)) + (c - back)
        pattern = total.view(np.int64)
        outward = np.where((error > 0) == (total > 0), 1, -1)
        inexact = (np.abs(error) > 0) & (pattern & 1 == 0)
        return (pattern + np.where(inexact, outward, 0)).view(np.float64).astype(F32)


def one_nan(x):
    return np.where(np.isnan(x), oracle.from_bits(np.uint32(0x7FC00000)), x).astype(F32)


def _keep(h, flashoptim):
    """What decoupled weight decay leaves of a weight; FlashOptim's kernels get the decay in FP32."""
    rate = h["lr"] / h["initial_lr"] if h["decouple_lr"] else h["lr"]
    decay = rate * h["weight_decay"]
    return F32(1) - F32(decay) if flashoptim else F32(1 - decay)


def _decay(optimizer, h, g, w, flashoptim=False):
    """-> gradient and weight after weight decay, coupled or not"""
    if optimizer in ("sgd", "adam"):
        return (fma(F32(h["weight_decay"]), w, g) if h["weight_decay"] else g), w
    return g, w * _keep(h, flashoptim)


def _sgd(h, fresh, g, w, m):
    update = g
    if h["momentum"]:
        mu = F32(h["momentum"])
        m = one_nan(g if fresh else fma(F32(1 - h["dampening"]), g, mu * m))
        update = fma(mu, m, g) if h["nesterov"] else m
    return fma(F32(-h["lr"]), update, w), m


def _adam(h, t, g, w, m, v):
    weight = F32(1 - h["beta1"])
    if weight < F32(0.5):
        m = fma(weight, g - m, m)
    else:
        m = fma(weight - F32(1), g - m, g)
    m = one_nan(m)
    v = one_nan(fma(F32(1 - h["beta2"]) * g, g, F32(h["beta2"]) * v))
    correction1, correction2 = 1 - h["beta1"] ** t, 1 - h["beta2"] ** t
    divisor = np.sqrt(v) / F32(math.sqrt(correction2)) + F32(h["eps"])
    return w + F32(-(h["lr"] / correction1)) * m / divisor, m, v


def _lion(h, g, w, m):
    beta1, beta2 = h["beta1"], h["beta2"]
    direction = fma(F32(1 - beta1), g, F32(beta1) * m)
    moved = w - F32(h["lr"]) * np.sign(direction)
    return np.where(direction == 0, w, moved), one_nan(fma(F32(1 - beta2), g, F32(beta2) * m))


def _flash(optimizer, h, t, g, state):
    """Adam, AdamW and Lion; what is left of the weight and the update are one operation."""
    w, m = state["weight"], state["momentum"]
    one, beta1, beta2, lr = F32(1), F32(h["beta1"]), F32(h["beta2"]), h["lr"]
    keep = one if optimizer == "adam" else _keep(h, True)
    if optimizer == "adam" and h["weight_decay"]:
        g = fma(F32(h["weight_decay"]), w, g)
    if optimizer == "lion":
        update = F32(-lr) * np.sign(fma(one - beta1, g, beta1 * m))
        return {"weight": one_nan(fma(w, keep, update)),
                "momentum": one_nan(fma(one - beta2, g, beta2 * m))}
    m = one_nan(fma(one - beta1, g, beta1 * m))
    v = one_nan(fma((one - beta2) * g, g, beta2 * state["variance"]))
    correction1, correction2 = (one - F32(float(b) ** t) for b in (beta1, beta2))
    divisor = np.sqrt(v) / F32(math.sqrt(correction2)) + F32(h["eps"])
    update = F32(-(lr / float(correction1))) * m / divisor
    return {"weight": one_nan(fma(w, keep, update)), "momentum": m, "variance": v}


def step(optimizer, h, t, fresh, g, state, flashoptim=False):
    """One step on FP32 arrays; -> the same keys.  `fresh`: SGD has no momentum yet."""
    with np.errstate(all="ignore"):
        if flashoptim and optimizer in ("adam", "adamw", "lion"):
            return _flash(optimizer, h, t, np.asarray(g, F32), state)
        fresh = fresh and not flashoptim
        out = dict(state)
        g, w = _decay(optimizer, h, np.asarray(g, F32), state["weight"], flashoptim)
        if optimizer in ("adam", "adamw"):
            w, out["momentum"], out["variance"] = _adam(h, t, g, w, state["momentum"],
                                                        state["variance"])
        elif optimizer == "lion":
            w, out["momentum"] = _lion(h, g, w, state["momentum"])
        else:
            w, m = _sgd(h, fresh, g, w, state.get("momentum"))
            if h["momentum"]:
                out["momentum"] = m
        out["weight"] = one_nan(w)
        return out


# ---- compressed state ---------------------------------------------------------------------------

def pack(codings, state, seed=0, names=None, shape=None):
    """-> part -> planes; groups follow the rows of a tensor of this shape"""
    def shaped(x):
        return np.reshape(x, shape) if shape else x
    return {part: oracle.encode(codec, shaped(state[part]), group, scale, seed,
                                (names or {}).get(part, ""))
            for part, (codec, group, scale) in codings.items() if part in state}


def unpack(codings, planes):
    return {part: oracle.decode(codings[part][0], p, *codings[part][1:]) for part, p in
            planes.items()}


def packed_step(optimizer, h, t, fresh, g, planes, codings, seed=0, names=None, flashoptim=False,
                shape=None):
    state = step(optimizer, h, t, fresh, g, unpack(codings, planes), flashoptim)
    return pack(codings, state, seed, names, shape)
