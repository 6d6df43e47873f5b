# SPDX-License-Identifier: Apache-2.0
"""The programs of bench/gpu_programs as a user of QuACK writes them (quack-kernels 0.6.5): a GEMM
with an epilogue of QuACK's library or, if the library has none, one written in QuACK's language.

As in our programs, finalizers combine partial sums. The differences: gate and up, and the two
columns of a rotation, are interleaved, so weights are packed; pre-activations of SwiGLU's backward
are stored before scaling; a rotation's angles are computed from positions and not loaded.
"""

import dataclasses
from collections.abc import Callable

import torch
from quack.activation import swiglu
from quack.epilogue import library as epilogues
from quack.epilogue.frontend import gemm_epilogue
from quack.epilogue.math import pack, unpack
from quack.epilogue.ops import ColVecLoad, ColVecSelect, OnlineLSEReduce
from quack.epilogue.rotary import make_interleaved_inv_freq, rstd_rope_posfreq_epi
from quack.gemm_config import GemmConfig

from programs_torch import HEAD, POSITIONS, Sizes, Tensors, normal, weight

_target = ColVecLoad("target")


@gemm_epilogue(outputs=("postact",), ops={"rstd": ColVecLoad("rstd")}, mode="acc_pair")
def rstd_swiglu_stored(acc, rstd):
    gate, up = unpack(acc * rstd)
    return {"D": pack(gate, up), "postact": swiglu(gate, up)}


@gemm_epilogue(
    ops={"rstd": ColVecLoad("rstd")},
    outs={"lse": OnlineLSEReduce("lse"),
          "target_logit": ColVecSelect("target_logit", idx_op=_target)},
    extra_ops=(_target,))
def rstd_lse_target(acc, rstd):
    logits = acc * rstd
    return {"D": logits, "lse": logits, "target_logit": logits}


@dataclasses.dataclass(frozen=True)
class Kernel:
    """tensors: "a" [M, K], "b" [K, N], "c" if the epilogue has one, and the epilogue's other
    tensors by name. outputs: by name, with "D" first. expected: the outputs and the finished sums,
    in float64."""

    epilogue: object
    tensors: Callable[[Sizes], Tensors]
    outputs: Callable[[Sizes], Tensors]
    expected: Callable[[Tensors], Tensors]
    adds: bool = False  # accumulates into D

    def loads(self, tensors: Tensors) -> Tensors:
        return {name: t for name, t in tensors.items() if name not in ("a", "b", "c")}

    def plan(self, tensors: Tensors, outputs: Tensors, config: GemmConfig):
        return self.epilogue.plan(tensors["a"], tensors["b"], tensors.get("c"), out=outputs,
                                  config=config, add_to_output=self.adds, **self.loads(tensors))

    def run(self, plan, tensors: Tensors, outputs: Tensors) -> None:
        plan.run(tensors["a"], tensors["b"], tensors.get("c"), out=outputs, **self.loads(tensors))


def empty(s: Sizes, rows: int, columns: int) -> torch.Tensor:
    return torch.empty(rows, columns, device=s.device, dtype=s.dtype)


def one_output(s: Sizes) -> Tensors:
    return {"D": empty(s, s.m, s.n)}


def of_rows(s: Sizes, mean: float) -> torch.Tensor:
    return mean * (1 + 0.1 * normal(s, 1, s.m, dtype=torch.float32))


def product(layout: str) -> Kernel:
    def tensors(s: Sizes) -> Tensors:
        a = normal(s, s.k, s.m).T if layout == "nt" else normal(s, s.m, s.k)
        b = weight(s, s.n, s.k, s.k).T if layout == "tn" else weight(s, s.k, s.n, s.k)
        return {"a": a, "b": b}

    return Kernel(epilogues.identity_epi, tensors, one_output, lambda t: {"D": t["a"] @ t["b"]})


def residual_norm() -> Kernel:
    def tensors(s: Sizes) -> Tensors:
        return {"a": normal(s, s.m, s.k), "b": weight(s, s.n, s.k, s.k).T,
                "c": normal(s, s.m, s.n), "weight": normal(s, 1, s.n)}

    def outputs(s: Sizes) -> Tensors:
        return {"D": empty(s, s.m, s.n), "resid_out": empty(s, s.m, s.n)}

    def expected(t: Tensors) -> Tensors:
        x = t["a"] @ t["b"] + t["c"]
        return {"D": x * t["weight"], "resid_out": x, "sqsum": (x * x).sum(1)}

    return Kernel(epilogues.rms_partial_epi, tensors, outputs, expected)


def rstd_swiglu() -> Kernel:
    def tensors(s: Sizes) -> Tensors:
        return {"a": normal(s, s.m, s.k), "b": weight(s, 2 * s.n, s.k, s.k).T,
                "rstd": of_rows(s, 1)}

    def outputs(s: Sizes) -> Tensors:
        return {"D": empty(s, s.m, 2 * s.n), "postact": empty(s, s.m, s.n)}

    def expected(t: Tensors) -> Tensors:
        z = t["a"] @ t["b"] * t["rstd"].T
        gate, up = z[:, ::2], z[:, 1::2]
        return {"D": z, "postact": gate * torch.sigmoid(gate) * up}

    return Kernel(rstd_swiglu_stored, tensors, outputs, expected)


def inverse_frequencies(s: Sizes) -> torch.Tensor:
    steps = torch.arange(0, HEAD, 2, device=s.device).double()
    return 10000.0 ** (-steps / HEAD)


def rope() -> Kernel:
    def tensors(s: Sizes) -> Tensors:
        position = torch.arange(s.m, device=s.device) % POSITIONS
        return {"a": normal(s, s.m, s.k), "b": weight(s, s.n, s.k, s.k).T,
                "pos": position.float()[None],
                "freq": make_interleaved_inv_freq(inverse_frequencies(s), s.n)[None],
                "rstd": of_rows(s, 1)}

    def expected(t: Tensors) -> Tensors:
        z = t["a"] @ t["b"] * t["rstd"].T
        angle = t["pos"].T * (t["freq"][:, ::2] + t["freq"][:, 1::2]) * 2 * torch.pi
        turned = torch.complex(z[:, ::2], z[:, 1::2]) * torch.polar(torch.ones_like(angle), angle)
        return {"D": torch.view_as_real(turned).flatten(1)}

    return Kernel(rstd_rope_posfreq_epi, tensors, one_output, expected)


def loss() -> Kernel:
    def tensors(s: Sizes) -> Tensors:
        target = torch.randint(s.n, (1, s.m), device=s.device, dtype=torch.int32)
        return {"a": normal(s, s.m, s.k), "b": weight(s, s.n, s.k, s.k).T, "rstd": of_rows(s, 1),
                "target": target}

    def expected(t: Tensors) -> Tensors:
        logits = t["a"] @ t["b"] * t["rstd"].T
        of_target = logits.gather(1, t["target"].long().T)[:, 0]
        return {"D": logits, "lse": logits.logsumexp(1), "target_logit": of_target}

    return Kernel(rstd_lse_target, tensors, one_output, expected)


def norm_backward() -> Kernel:
    def tensors(s: Sizes) -> Tensors:
        return {"a": normal(s, s.m, s.k), "b": weight(s, s.k, s.n, s.k), "c": normal(s, s.m, s.n),
                "y": normal(s, s.m, s.n), "w": normal(s, 1, s.n), "corr": of_rows(s, 0.1)}

    def expected(t: Tensors) -> Tensors:
        g = t["a"] @ t["b"]
        return {"D": g * t["w"] + t["c"] + t["y"] * t["corr"].T, "dw": (g * t["y"]).sum(0)}

    return Kernel(epilogues.rms_bwd_apply_epi, tensors, one_output, expected)


def swiglu_backward() -> Kernel:
    def tensors(s: Sizes) -> Tensors:
        return {"a": normal(s, s.m, s.k), "b": weight(s, s.k, s.n, s.k),
                "c": normal(s, s.m, 2 * s.n), "rstd": of_rows(s, 1)}

    def outputs(s: Sizes) -> Tensors:
        return {"D": empty(s, s.m, 2 * s.n), "postact": empty(s, s.m, s.n)}

    def expected(t: Tensors) -> Tensors:
        r = t["rstd"].T
        scaled = t["c"] * r
        gate, up = (scaled[:, i::2].clone().requires_grad_() for i in (0, 1))
        a = gate * torch.sigmoid(gate) * up
        gradients = torch.stack(torch.autograd.grad(a, (gate, up), t["a"] @ t["b"]), 2).flatten(1)
        return {"D": gradients * r, "postact": a.detach(), "dsum": (gradients * t["c"]).sum(1)}

    return Kernel(epilogues.dswiglu_rstd_preact_mod, tensors, outputs, expected)


def weight_gradient() -> Kernel:
    def tensors(s: Sizes) -> Tensors:
        return {"a": normal(s, s.k, s.m).T, "b": normal(s, s.k, s.n)}

    def outputs(s: Sizes) -> Tensors:
        return {"D": torch.zeros(s.m, s.n, device=s.device, dtype=torch.float32)}

    def expected(t: Tensors) -> Tensors:
        return {"D": t["a"] @ t["b"]}

    return Kernel(epilogues.identity_epi, tensors, outputs, expected, adds=True)


KERNELS = {
    "product_tn": product("tn"), "product_nn": product("nn"), "product_nt": product("nt"),
    "residual_norm": residual_norm(), "swiglu": rstd_swiglu(), "rope": rope(), "loss": loss(),
    "norm_backward": norm_backward(), "swiglu_backward": swiglu_backward(),
    "weight_gradient": weight_gradient()}


def finished(name: str, partial: torch.Tensor) -> torch.Tensor:
    """The sum of QuACK's partial sums, which are by tiles of columns, or of rows for dw."""
    if name == "lse":
        return partial.double().logsumexp(-1)
    return partial.double() if name == "target_logit" else partial.double().sum(
        -2 if name == "dw" else -1)
