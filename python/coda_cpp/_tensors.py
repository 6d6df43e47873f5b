# SPDX-License-Identifier: Apache-2.0
"""Type, shape and address of tensors of any library.

PyTorch's tensors are read directly; any other object becomes a NumPy array, through DLPack or the
array interface, without a copy.
"""

from __future__ import annotations

import sys
from typing import Any

from coda_cpp._core import Error

_TORCH_DTYPES: dict[Any, str] = {}


def is_torch(tensor: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(tensor, torch.Tensor)


def torch_dtypes() -> dict[Any, str]:
    """Maps each PyTorch type that plans can store to its name in plans."""
    if not _TORCH_DTYPES:
        import torch

        _TORCH_DTYPES.update({
            torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16",
            torch.float64: "f64", torch.int32: "i32", torch.float8_e4m3fn: "e4m3",
            torch.float8_e5m2: "e5m2", torch.bool: "u8", torch.uint8: "u8"})
    return _TORCH_DTYPES


_NUMPY_DTYPES = {"float32": "f32", "float16": "f16", "float64": "f64", "int32": "i32",
                 "bfloat16": "bf16", "uint8": "u8", "bool": "u8"}


def as_array(tensor: Any) -> Any:
    """A NumPy array of the same memory. Raises Error for an object that has neither DLPack nor the
    array interface."""
    import numpy

    if isinstance(tensor, numpy.ndarray):
        return tensor
    if hasattr(tensor, "__dlpack__"):
        return numpy.from_dlpack(tensor)
    if hasattr(tensor, "__array_interface__"):
        return numpy.asarray(tensor)
    raise Error(f"a {type(tensor).__name__} is no tensor: give a PyTorch tensor, a NumPy array or "
                "an object with __dlpack__")


def dtype_name(tensor: Any) -> str | None:
    """The name of the tensor's type in plans, or None if plans cannot store the type. Raises Error
    for an array of another byte order, and for a negated view."""
    if is_torch(tensor):
        if tensor.is_neg():
            raise Error("the tensor is a negated view (is_neg()): its memory holds the values "
                        "with the opposite sign; pass tensor.resolve_neg()")
        return torch_dtypes().get(tensor.dtype)
    if not tensor.dtype.isnative:
        raise Error(f"an array of {tensor.dtype.str} has another byte order than this machine: "
                    "give array.astype(array.dtype.newbyteorder('='))")
    return _NUMPY_DTYPES.get(tensor.dtype.name)


def address(tensor: Any) -> int:
    return tensor.data_ptr() if is_torch(tensor) else tensor.__array_interface__["data"][0]


def is_dense(tensor: Any) -> bool:
    return tensor.is_contiguous() if is_torch(tensor) else tensor.flags.c_contiguous
