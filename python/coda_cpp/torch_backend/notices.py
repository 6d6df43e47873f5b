# SPDX-License-Identifier: Apache-2.0
"""Messages to the user: warnings, each given once, and the errors of "strict", to which PyTorch
adds no text. Also the reasons why the backend does nothing: the GPU has no kernels, or 8-bit GEMMs
were requested and no GEMM can use them."""

from __future__ import annotations

import functools
import logging
import sys
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch._dynamo.exc import ShortenTraceback

from coda_cpp import _core
from coda_cpp._core import Error, InternalError
from coda_cpp.function import EIGHT_BITS
from coda_cpp.session import backend
from coda_cpp.torch_backend.layout import NotUnderstood
from coda_cpp.torch_backend.options import Options
from coda_cpp.torch_backend.report import FAULT, Report

_ROWS = 16  # products in 8 bits need a multiple of this number of rows


@functools.cache
def warn_once(text: str) -> None:
    logging.getLogger("coda_cpp").warning("coda: %s", text)


# The calls of torch.compile that have had a warning, by id().
_warned: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def _call_of_compile() -> Any:
    """The object that torch.compile made for the call that runs the backend now. None if the user
    passed a function as the backend."""
    frame = sys._getframe(1)
    while frame is not None:
        found = frame.f_locals.get("self")
        if type(found).__name__ == "_TorchCompileWrapper":
            return found
        frame = frame.f_back
    return None


def warn_of_layers(text: str) -> None:
    """Warns of linear layers that are not fused, once for each model. Dynamo may split a model into
    several graphs; the other graphs appear only in the log, at level INFO."""
    call = _call_of_compile()
    if call is None:
        warn_once(text)
    elif id(call) not in _warned:
        _warned[id(call)] = call
        warn_once(f"{text} (coda_cpp.explain reports all graphs of the model)")


def reason(why: Exception) -> str:
    """What the user is told of an error that leaves operations to PyTorch. An error that the
    backend does not raise itself is its own fault, often that of a version of PyTorch with which it
    was not tested."""
    if isinstance(why, (NotUnderstood, Error, InternalError)):
        return str(why)
    return (f"{FAULT} (coda_cpp {_core.version} with PyTorch {torch.__version__}): "
            f"{type(why).__name__}: {why}")


class StrictError(Error, ShortenTraceback):
    """The error of "strict". PyTorch raises a ShortenTraceback unchanged, without adding text."""

    def __init__(self, text: str) -> None:
        Exception.__init__(self, text)
        self._text, self.first_useful_frame = f"backend coda: {text}", None

    def __str__(self) -> str:
        return self._text


@functools.cache
def _why_no_kernels(device: int) -> str:
    try:
        backend("gpu", device)
        _core.precompile([], 132)  # an empty list: only looks for NVRTC
    except Error as why:
        return str(why)
    return ""


def why_no_kernels(inputs: Sequence[Any]) -> str:
    """Why regions cannot run on the device of the inputs; empty if they can."""
    devices = {t.device for t in inputs if isinstance(t, torch.Tensor) and t.device.type != "cpu"}
    for device in devices:
        if device.type != "cuda":
            return f"there are no kernels for devices of the type '{device.type}'"
        if why := _why_no_kernels(device.index or 0):
            return why
    return ""


def why_no_eight_bits(inputs: Sequence[Any], options: Options) -> str:
    """Why products cannot be in 8 bits on the device of the inputs, although they were requested;
    empty if they can, or if they were not requested."""
    if not options.products:
        return ""
    for device in {t.device for t in inputs if isinstance(t, torch.Tensor)}:
        if device.type == "cuda" and (
                why := backend("gpu", device.index or 0).why_no_eight_bits):
            return f"GEMMs stay in 16 bits, although 'products' is '{options.products}': {why}"
    return ""


def eight_bits_that_do_nothing(report: Report, options: Options) -> str:
    """Why no product is in 8 bits although 8 bits were requested; empty if some are, or if they
    were not requested."""
    if not options.products:
        return ""
    asked = f"the option 'products' is '{options.products}', and "
    if not report.fused:
        return asked + "no region is fused, so no GEMM is in 8 bits: see coda_cpp.explain"
    functions = [(entry.region.function.function, entry.region) for entry in report.fused]
    if not any(function.products for function, _ in functions):
        types = sorted({str(region.storage) for _, region in functions})
        return asked + (f"the model is in {', '.join(types)}, so no GEMM is in 8 bits: only "
                        "bf16 GEMMs can be (use model.bfloat16() or torch.autocast)")
    in_training = [(function, region.needs) for function, region in functions
                   if function.products and region.needs]
    if not in_training:
        return ""  # inference is in 16 bits
    if any(rows % _ROWS for function, _ in in_training
           for rows in function.nominal_sizes().values()):
        return asked + ("calls whose number of rows (batch x tokens) is not a multiple of "
                        f"{_ROWS} stay in 16 bits")
    if not any(function.phases(needs | EIGHT_BITS).first_scales for function, needs in in_training):
        return asked + f"no GEMM is in 8 bits: their contractions must be multiples of {_ROWS}"
    return ""
