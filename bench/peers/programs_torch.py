# SPDX-License-Identifier: Apache-2.0
"""The programs of bench/gpu_programs as a user of PyTorch writes them, and in plain float64.

Each Formula has its tensors, the computation for torch.compile, and a reference for its check in
float64, computed differently (gradients by automatic differentiation). Sums are complete here,
where a program leaves partial sums to a finalizer. Products over the same rows are one product with
packed weights, because this is PyTorch's fastest form.
"""

import dataclasses
from collections.abc import Callable

import torch
import torch.nn.functional as F

EPS = 1e-5
HEAD = 128
POSITIONS = 4096

Tensors = dict[str, torch.Tensor]


@dataclasses.dataclass(frozen=True)
class Sizes:
    m: int
    n: int  # the columns that a program stores: for SwiGLU half of the product's
    k: int
    dtype: torch.dtype
    device: str


@dataclasses.dataclass(frozen=True)
class Formula:
    tensors: Callable[[Sizes], Tensors]
    compute: Callable[[Tensors], tuple[torch.Tensor, ...]]
    reference: Callable[[Tensors], tuple[torch.Tensor, ...]]  # of float64 tensors
    product: Callable[[Tensors], tuple[torch.Tensor, torch.Tensor]]  # operands of the bare product


def normal(sizes: Sizes, *shape: int, scale: float = 1.0, dtype=None) -> torch.Tensor:
    x = torch.randn(shape, device=sizes.device, dtype=torch.float32)
    return (x * scale).to(dtype or sizes.dtype)


def weight(sizes: Sizes, rows: int, columns: int, depth: int) -> torch.Tensor:
    return normal(sizes, rows, columns, scale=depth ** -0.5)


def positive(sizes: Sizes) -> torch.Tensor:
    """The reciprocal root mean square of each row, in fp32."""
    return 1 + 0.1 * normal(sizes, sizes.m, 1, dtype=torch.float32)


def product(layout: str) -> Formula:
    """y = op(a) op(b) for the layout of the operands: t is transposed (tn: both K-major)."""
    def operands(t: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
        a, b = t["a"], t["b"]
        return (a.T if layout == "nt" else a), (b.T if layout == "tn" else b)

    def tensors(s: Sizes) -> Tensors:
        a = normal(s, *((s.k, s.m) if layout == "nt" else (s.m, s.k)))
        return {"a": a, "b": weight(s, *((s.n, s.k) if layout == "tn" else (s.k, s.n)), s.k)}

    def compute(t: Tensors) -> tuple[torch.Tensor, ...]:
        a, b = operands(t)
        return (a @ b,)

    return Formula(tensors, compute, compute, operands)


def residual_norm() -> Formula:
    def tensors(s: Sizes) -> Tensors:
        return {"y": normal(s, s.m, s.k), "w": weight(s, s.n, s.k, s.k),
                "x0": normal(s, s.m, s.n), "norm": normal(s, s.n)}

    def compute(t: Tensors) -> tuple[torch.Tensor, ...]:
        x = t["x0"] + F.linear(t["y"], t["w"])
        r = torch.rsqrt(x.float().square().mean(1, keepdim=True) + EPS)
        return x, x * t["norm"], r

    def reference(t: Tensors) -> tuple[torch.Tensor, ...]:
        x = t["x0"] + t["y"] @ t["w"].T
        return x, x * t["norm"], ((x * x).sum(1, keepdim=True) / x.shape[1] + EPS) ** -0.5

    return Formula(tensors, compute, reference, lambda t: (t["y"], t["w"].T))


def swiglu() -> Formula:
    def tensors(s: Sizes) -> Tensors:
        return {"h": normal(s, s.m, s.k), "w": weight(s, 2 * s.n, s.k, s.k), "r": positive(s)}

    def compute(t: Tensors) -> tuple[torch.Tensor, ...]:
        z = (F.linear(t["h"], t["w"]) * t["r"]).to(t["h"].dtype)
        gate, up = z.chunk(2, dim=1)
        return z, F.silu(gate) * up

    def reference(t: Tensors) -> tuple[torch.Tensor, ...]:
        half = t["w"].shape[0] // 2
        gate = t["h"] @ t["w"][:half].T * t["r"]
        up = t["h"] @ t["w"][half:].T * t["r"]
        return torch.cat((gate, up), 1), gate / (1 + torch.exp(-gate)) * up

    return Formula(tensors, compute, reference, lambda t: (t["h"], t["w"].T))


def rope() -> Formula:
    def tensors(s: Sizes) -> Tensors:
        frequencies = 10000.0 ** (-torch.arange(0, HEAD, 2, device=s.device).double() / HEAD)
        angles = torch.arange(POSITIONS, device=s.device).double()[:, None] * frequencies
        return {"h": normal(s, s.m, s.k), "w": weight(s, s.n, s.k, s.k), "r": positive(s),
                "cos": angles.cos().float(), "sin": angles.sin().float(),
                "position": torch.arange(s.m, device=s.device) % POSITIONS}

    def compute(t: Tensors) -> tuple[torch.Tensor, ...]:
        z = (F.linear(t["h"], t["w"]) * t["r"]).view(t["h"].shape[0], -1, 2, HEAD // 2)
        cos, sin = (t[name][t["position"]][:, None] for name in ("cos", "sin"))
        first, second = z[:, :, 0], z[:, :, 1]
        turned = torch.stack((first * cos - second * sin, second * cos + first * sin), dim=2)
        return (turned.flatten(1).to(t["h"].dtype),)

    def reference(t: Tensors) -> tuple[torch.Tensor, ...]:
        z = (t["h"] @ t["w"].T * t["r"]).view(t["h"].shape[0], -1, 2, HEAD // 2)
        turn = torch.complex(t["cos"], t["sin"])[t["position"]][:, None]
        turned = torch.complex(z[:, :, 0], z[:, :, 1]) * turn
        return (torch.stack((turned.real, turned.imag), 2).flatten(1),)

    return Formula(tensors, compute, reference, lambda t: (t["h"], t["w"].T))


def loss() -> Formula:
    def tensors(s: Sizes) -> Tensors:
        target = torch.randint(s.n, (s.m,), device=s.device)
        return {"h": normal(s, s.m, s.k), "w": weight(s, s.n, s.k, s.k), "r": positive(s),
                "target": target}

    def compute(t: Tensors) -> tuple[torch.Tensor, ...]:
        logits = (F.linear(t["h"], t["w"]) * t["r"]).to(t["h"].dtype)
        wide = logits.float()
        of_target = wide.gather(1, t["target"][:, None])
        return logits, torch.logsumexp(wide, 1), of_target

    def reference(t: Tensors) -> tuple[torch.Tensor, ...]:
        logits = t["h"] @ t["w"].T * t["r"]
        top = logits.max(1).values
        sums = torch.exp(logits - top[:, None]).sum(1)
        rows = torch.arange(logits.shape[0], device=logits.device)
        return logits, top + torch.log(sums), logits[rows, t["target"]][:, None]

    return Formula(tensors, compute, reference, lambda t: (t["h"], t["w"].T))


def norm_backward() -> Formula:
    def tensors(s: Sizes) -> Tensors:
        return {"dz": normal(s, s.m, s.k), "w": weight(s, s.k, s.n, s.k), "x": normal(s, s.m, s.n),
                "norm": normal(s, s.n), "s": 0.1 * positive(s), "dx": normal(s, s.m, s.n)}

    def compute(t: Tensors) -> tuple[torch.Tensor, ...]:
        g = t["dz"] @ t["w"]
        dx = t["dx"] + (g * t["norm"] + t["x"] * t["s"])
        return dx.to(t["x"].dtype), (t["x"] * g).sum(0, dtype=torch.float32)

    def reference(t: Tensors) -> tuple[torch.Tensor, ...]:
        """The gradients of <dz, (x ⊙ norm) wᵀ> + <dx, x> + Σ s x²/2 with respect to x and the
        norm's weight."""
        x, norm = t["x"].clone().requires_grad_(), t["norm"].clone().requires_grad_()
        energy = (((x * norm) @ t["w"].T) * t["dz"]).sum()
        energy = energy + (t["dx"] * x).sum() + (t["s"] * x * x / 2).sum()
        return torch.autograd.grad(energy, (x, norm))

    return Formula(tensors, compute, reference, lambda t: (t["dz"], t["w"]))


def swiglu_backward() -> Formula:
    def tensors(s: Sizes) -> Tensors:
        return {"dx": normal(s, s.m, s.k), "w": weight(s, s.k, s.n, s.k),
                "gate": normal(s, s.m, s.n), "up": normal(s, s.m, s.n), "r": positive(s)}

    def compute(t: Tensors) -> tuple[torch.Tensor, ...]:
        da = t["dx"] @ t["w"]
        gate, up = t["gate"].float(), t["up"].float()
        sigmoid = torch.sigmoid(gate)
        act = gate * sigmoid
        dup = da * act
        dgate = da * up * (sigmoid + act * (1 - sigmoid))
        dtype = t["gate"].dtype
        s = (gate * dgate + up * dup).sum(1)
        return (act * up).to(dtype), (dgate * t["r"]).to(dtype), (dup * t["r"]).to(dtype), s

    def reference(t: Tensors) -> tuple[torch.Tensor, ...]:
        gate, up = (t[name].clone().requires_grad_() for name in ("gate", "up"))
        a = gate / (1 + torch.exp(-gate)) * up
        dgate, dup = torch.autograd.grad(a, (gate, up), t["dx"] @ t["w"])
        s = (gate * dgate).sum(1) + (up * dup).sum(1)
        return a.detach(), dgate * t["r"], dup * t["r"], s.detach()

    return Formula(tensors, compute, reference, lambda t: (t["dx"], t["w"]))


def weight_gradient() -> Formula:
    """Accumulates into an fp32 buffer and returns the buffer. The reference is only the added
    term."""
    def tensors(s: Sizes) -> Tensors:
        return {"dy": normal(s, s.k, s.m), "x": normal(s, s.k, s.n),
                "dw": torch.zeros(s.m, s.n, device=s.device, dtype=torch.float32)}

    def compute(t: Tensors) -> tuple[torch.Tensor, ...]:
        return (t["dw"].add_(t["dy"].T @ t["x"]),)

    def reference(t: Tensors) -> tuple[torch.Tensor, ...]:
        return (t["dw"] + t["dy"].T @ t["x"],)

    return Formula(tensors, compute, reference, lambda t: (t["dy"].T, t["x"]))


FORMULAS = {
    "product_tn": product("tn"), "product_nn": product("nn"), "product_nt": product("nt"),
    "residual_norm": residual_norm(), "swiglu": swiglu(), "rope": rope(), "loss": loss(),
    "norm_backward": norm_backward(), "swiglu_backward": swiglu_backward(),
    "weight_gradient": weight_gradient()}


def cases(tokens: int, d: int, mlp: int, square: bool) -> list[tuple[str, str, int, int, int]]:
    """(row, formula, m, n, k) of bench/gpu_programs/cases.cc. square: M = N = K = d, where N is
    the product's columns."""
    if square:
        return [
            ("bare product, TN", "product_tn", d, d, d),
            ("residual + norm", "residual_norm", d, d, d),
            ("rstd + SwiGLU", "swiglu", d, d // 2, d),
            ("rstd + RoPE", "rope", d, d, d),
            ("rstd + LSE + target", "loss", d, d, d),
            ("norm backward", "norm_backward", d, d, d),
            ("SwiGLU backward", "swiglu_backward", d, d, d),
            ("weight gradient into fp32", "weight_gradient", d, d, d)]
    rows = [
        ("bare product, TN", "product_tn", tokens, d, d),
        ("bare product, NN", "product_nn", tokens, d, d),
        ("bare product, NT", "product_nt", d, d, tokens),
        ("residual + norm, K = D", "residual_norm", tokens, d, d),
        ("residual + norm, K = I", "residual_norm", tokens, d, mlp),
        ("rstd + SwiGLU", "swiglu", tokens, mlp, d),
        ("rstd + RoPE", "rope", tokens, d, d)]
    if d <= 4096:
        rows += [(f"rstd + LSE + target, V = {v}", "loss", tokens, v, d) for v in (32768, 128256)]
    return rows + [
        ("norm backward, K = D", "norm_backward", tokens, d, d),
        ("norm backward, K = 3D", "norm_backward", tokens, d, 3 * d),
        ("norm backward, K = 2I", "norm_backward", tokens, d, 2 * mlp),
        ("SwiGLU backward", "swiglu_backward", tokens, mlp, d),
        ("weight gradient into fp32", "weight_gradient", d, d, tokens)]
