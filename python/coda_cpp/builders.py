# SPDX-License-Identifier: Apache-2.0
"""Functions that build a Graph: products, norms, activations, RoPE, attention, losses, and
elementwise operations by name. All arguments of a call are values of one graph. Values and numbers
can also be combined by + - * /.

    graph = coda_cpp.Graph()
    x = graph.input("x", ("M", 64))
    w = graph.parameter("w", (128, 64))
    y = silu(linear(x, w))
"""

from coda_cpp._core import (
    Value, attention, col_sum, concat_columns, conv1d, cross_entropy, elementwise, gather_rows,
    geglu, group_repeat, group_sum, layer_norm, linear, merge_pairs, repeat_columns, rms_norm,
    rms_reciprocal, rope, row_logsumexp, row_m2, row_mean, row_sum, select_column,
    slice_columns, soft_cap, split_pair, swiglu, transpose)

__all__ = ["attention", "col_sum", "concat_columns", "conv1d", "cross_entropy", "elementwise",
           "equal", "erf", "exp", "gather_rows", "geglu", "gelu", "gelu_tanh", "group_repeat",
           "group_sum", "layer_norm", "less", "linear", "log", "maximum", "merge_pairs", "minimum",
           "recip", "repeat_columns", "rms_norm", "rms_reciprocal", "rope", "row_logsumexp",
           "row_m2", "row_mean", "row_sum", "rsqrt", "select", "select_column", "sigmoid", "silu",
           "slice_columns", "soft_cap", "split_pair", "sqrt", "swiglu", "tanh", "transpose"]


def exp(x: Value) -> Value:
    return elementwise("exp", [x])


def log(x: Value) -> Value:
    return elementwise("log", [x])


def rsqrt(x: Value) -> Value:
    return elementwise("rsqrt", [x])


def sqrt(x: Value) -> Value:
    return elementwise("sqrt", [x])


def recip(x: Value) -> Value:
    return elementwise("recip", [x])


def sigmoid(x: Value) -> Value:
    return elementwise("sigmoid", [x])


def tanh(x: Value) -> Value:
    return elementwise("tanh", [x])


def erf(x: Value) -> Value:
    return elementwise("erf", [x])


def silu(x: Value) -> Value:
    return elementwise("silu", [x])


def gelu(x: Value) -> Value:
    """Exact, with erf."""
    return elementwise("gelu", [x])


def gelu_tanh(x: Value) -> Value:
    """The tanh approximation, which GPT-2 uses."""
    return elementwise("gelu_tanh", [x])


def maximum(a: Value | float, b: Value | float) -> Value:
    return elementwise("max", [a, b])


def minimum(a: Value | float, b: Value | float) -> Value:
    return elementwise("min", [a, b])


def equal(a: Value | float, b: Value | float) -> Value:
    """1 or 0."""
    return elementwise("equal", [a, b])


def less(a: Value | float, b: Value | float) -> Value:
    """a < b: 1 or 0."""
    return elementwise("less", [a, b])


def select(condition: Value, a: Value | float, b: Value | float) -> Value:
    """a where the condition is not 0, else b."""
    return elementwise("select", [condition, a, b])
