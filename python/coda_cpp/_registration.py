# SPDX-License-Identifier: Apache-2.0
"""Registers functions as operators of PyTorch with little host time for a call.

torch.library.custom_op and register_autograd would do the same. But each of their calls also looks
for results that are arguments, and with gradients it flattens the arguments and uses the dispatcher
again, all in Python. On steps that the host bounds, this is the larger part of a call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

LIBRARY = torch.library.Library("coda_cpp", "DEF")
_BELOW = torch._C._after_autograd_keyset
# Dispatch keys of plain tensors: no PyTorch mode and no subclass of Tensor intercepts the call.
_PLAIN = {torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, name)).raw_repr()
          for name in ("CPU", "CUDA")}


def is_plain(keyset: Any) -> bool:
    """Whether the call's dispatch keys are those of plain tensors."""
    return (keyset & _BELOW).raw_repr() in _PLAIN


def below(operator: Any, keyset: Any, *arguments: Any) -> Any:
    """A call of the operator without autograd, for tensors that are not plain."""
    with torch._C._AutoDispatchBelowAutograd():
        return operator.redispatch(keyset & _BELOW, *arguments)


def needs_gradients(tensors: Sequence[torch.Tensor]) -> bool:
    # A function that is called under forward-mode differentiation raises PyTorch's error.
    return torch.autograd.forward_ad._current_level >= 0 or torch.is_grad_enabled() and any(
        [x.requires_grad for x in tensors])


def register(name: str, function: Callable, fake: Callable, schema: str = "",
             tags: Sequence[torch.Tag] = ()) -> Any:
    """Registers coda_cpp::NAME, which has no gradient, for CPUs and GPUs, and returns it. `fake`:
    results without values, for tensors without values. `schema`: from the annotations of the
    function, if it is empty."""
    LIBRARY.define(name + (schema or torch.library.infer_schema(function, mutates_args=())),
                   tags=(torch.Tag.pt2_compliant_tag, *tags))
    for device in ("CPU", "CUDA"):
        LIBRARY.impl(name, function, device)
    torch.library.register_fake(f"coda_cpp::{name}", fake, lib=LIBRARY)
    return getattr(torch.ops.coda_cpp, name).default


def register_composed(name: str, function: Callable) -> Any:
    """Registers coda_cpp::NAME, which compilers of PyTorch see as the operators that the function
    calls."""
    LIBRARY.define(name + torch.library.infer_schema(function, mutates_args=()),
                   tags=(torch.Tag.pt2_compliant_tag,))
    LIBRARY.impl(name, function, "CompositeImplicitAutograd")
    return getattr(torch.ops.coda_cpp, name).default


def differentiate(operator: Any, function: Callable, save: Callable, gradients: Callable) -> None:
    """Gives an operator that was registered with `function` a gradient. save(ctx, arguments,
    results) keeps tensors, and gradients(ctx, *upstream) returns one for each argument; both as in
    torch.library.register_autograd."""
    defaults = [argument.default_value for argument in operator._schema.arguments]

    def plain(keyset: Any, *given: Any) -> tuple[torch.Tensor, ...]:
        return function(*given) if is_plain(keyset) else below(operator, keyset, *given)

    def forward(ctx: Any, *given: Any) -> tuple[torch.Tensor, ...]:
        made = plain(*given)
        save(ctx, (*given[1:], *defaults[len(given) - 1:]), made)
        ctx.given = len(given)  # PyTorch passes no last arguments that are the defaults
        return made

    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *upstream: torch.Tensor) -> tuple:
        return (None, *gradients(ctx, *upstream))[:ctx.given]

    differentiated = type(operator._schema.name, (torch.autograd.Function,), {
        "forward": staticmethod(forward), "backward": staticmethod(backward)})

    def autograd(*given: Any) -> tuple[torch.Tensor, ...]:
        tensors = [x for x in given if isinstance(x, torch.Tensor)]
        return (differentiated.apply if needs_gradients(tensors) else plain)(*given)

    LIBRARY.impl(operator._schema.name.partition("::")[2], autograd, "Autograd", with_keyset=True)
