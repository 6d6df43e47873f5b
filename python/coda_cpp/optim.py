# SPDX-License-Identifier: Apache-2.0
"""AdamW in one pass over memory."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

import torch

from coda_cpp import _core
from coda_cpp._core import Error
from coda_cpp.session import backend

_LIBRARY = torch.library.Library("coda_cpp", "FRAGMENT")
_LIBRARY.define(
    "adamw_(Tensor(a!)[] weights, Tensor(b!)[] means, Tensor(c!)[] squares, Tensor[] gradients, "
    "float lr, float beta1, float beta2, float eps, float weight_decay, int step) -> ()")


@functools.lru_cache(maxsize=64)
def _updater(beta1: float, beta2: float, eps: float, weight_decay: float) -> _core.Updater:
    settings = {"beta1": beta1, "beta2": beta2, "adam-eps": eps, "decay": weight_decay}
    return _core.Updater("adamw", settings, backend("cpu"))


def _adamw(weights: list[torch.Tensor], means: list[torch.Tensor], squares: list[torch.Tensor],
           gradients: list[torch.Tensor], lr: float, beta1: float, beta2: float, eps: float,
           weight_decay: float, step: int) -> None:
    kept = []
    arrays = []
    for of_one in zip(weights, means, squares, gradients, strict=True):
        for tensor, name in zip(of_one, ("weight", "mean", "square", "gradient")):
            if tensor.dtype != torch.float32 or tensor.shape != of_one[0].shape:
                raise Error(f"adamw_: a {name} must be float32 {list(of_one[0].shape)}, but it is "
                            f"{tensor.dtype} {list(tensor.shape)}")
            if tensor.device.type != "cpu" or name != "gradient" and not tensor.is_contiguous():
                raise Error(f"adamw_: a {name} must be contiguous and lie on the CPU")
        gradient = of_one[3].contiguous()
        kept.append(gradient)
        weight, *states, gradient = [tensor.data_ptr() for tensor in (*of_one[:3], gradient)]
        if of_one[0].numel():
            arrays.append((weight, states, gradient, of_one[0].numel(), True))
    _updater(beta1, beta2, eps, weight_decay).run(arrays, lr, step)


_LIBRARY.impl("adamw_", _adamw, "CPU")
torch.library.register_fake("coda_cpp::adamw_", lambda *arguments: None, lib=_LIBRARY)


class AdamW(torch.optim.Optimizer):
    """torch.optim.AdamW's step (Loshchilov and Hutter, arXiv 1711.05101) in one pass over each
    parameter, with the same bits for any number of threads. Parameters must be float32, dense and
    on a CPU. The state dict (step, exp_avg, exp_avg_sq) can be exchanged with torch.optim.AdamW."""

    def __init__(self, params: Iterable, lr: float = 1e-3,
                 betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 1e-2) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps,
                                  "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], torch.Tensor] | None = None) -> torch.Tensor | None:
        """Raises coda_cpp.Error for a parameter that it cannot update."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            by_step: dict[int, list[torch.Tensor]] = {}
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                if weight.grad.is_sparse:
                    raise Error("AdamW: a gradient is sparse; it takes dense ones")
                state = self.state[weight]
                if not state:
                    state["step"] = torch.tensor(0.0)
                    for name in ("exp_avg", "exp_avg_sq"):
                        state[name] = torch.zeros_like(
                            weight, memory_format=torch.contiguous_format)
                by_step.setdefault(int(state["step"]) + 1, []).append(weight)
            for step, weights in by_step.items():
                states = [self.state[weight] for weight in weights]
                torch.ops.coda_cpp.adamw_(
                    weights, [state["exp_avg"] for state in states],
                    [state["exp_avg_sq"] for state in states],
                    [weight.grad for weight in weights], float(group["lr"]), *group["betas"],
                    group["eps"], group["weight_decay"], step)
                for state in states:
                    state["step"] += 1
        return loss
