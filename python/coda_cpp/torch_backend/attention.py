# SPDX-License-Identifier: Apache-2.0
"""How PyTorch runs attention.

If a mask is provably causal, is_causal is set instead, so that attention takes its fast path. The
proof uses the graph that computes the mask (mask_proof.py). Other masks are not changed.

Where lengths vary, cuDNN is not used: it compiles a graph for every new length. On an H200 with
PyTorch 2.11 this takes 120 ms of a step, of which the GPU works 20.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx
from torch.backends import cuda

from coda_cpp.torch_backend import mask_proof
from coda_cpp.torch_backend.layout import is_one, same

_aten = torch.ops.aten
CAUSAL = "coda_causal"  # in a node's meta
_ATTENTION = _aten.scaled_dot_product_attention.default


def _grouped(node: Any) -> tuple[fx.Node, int] | None:
    """For keys or values whose heads are repeated for grouped queries: the heads before the
    repetition, and the number of repetitions."""
    if not isinstance(node, fx.Node) or node.target not in (
            _aten.reshape.default, _aten.view.default, _aten._unsafe_view.default):
        return None
    wide = node.args[0]
    narrow = wide.args[0] if wide.target is _aten.expand.default else None
    if narrow is None or narrow.target is not _aten.unsqueeze.default or narrow.args[1] != 2:
        return None
    heads = narrow.args[0]
    before, between, after = (n.meta["val"].shape for n in (heads, wide, node))
    if len(before) != 4 or len(after) != 4 or not isinstance(between[2], int):
        return None
    expected = (before[0], before[1], between[2], before[2], before[3])
    merged = (before[0], before[1] * between[2], before[2], before[3])
    if all(map(same, between, expected)) and all(map(same, after, merged)):
        return heads, between[2]
    return None


def _is_of(mask: fx.Node, query: Any, key: Any) -> bool:
    """Whether the mask has an element for each score, possibly broadcast along leading
    dimensions."""
    mask, query, key = (node.meta["val"].shape for node in (mask, query, key))
    scores = (*query[:-1], key[-2])
    return len(mask) <= len(scores) and all(map(same, mask[-2:], scores[-2:])) and all(
        is_one(size) or same(size, of) for size, of in zip(mask[-3::-1], scores[-3::-1]))


class Causal:
    """Finds the causal masks of a graph."""

    def __init__(self, graph: fx.Graph) -> None:
        self._prover = mask_proof.Prover(mask_proof.written(graph))

    def is_mask(self, node: fx.Node) -> bool:
        """Whether node[..., i, j] is the causal mask: True, or 0.0, only for j <= i."""
        if node.op == "placeholder":
            return bool(node.meta.get(CAUSAL))
        return mask_proof.is_causal(self._prover, node)

    def tell(self, graph: fx.Graph) -> int:
        """Replaces causal masks of attention calls by is_causal, and passes heads of keys and
        values without repetition. Returns the number of changed calls."""
        told = 0
        for node in graph.nodes:
            if node.target is not _ATTENTION:
                continue
            arguments = dict(zip(("query", "key", "value", "attn_mask", "dropout_p", "is_causal"),
                                 node.args)) | node.kwargs
            mask = arguments.get("attn_mask")
            if mask is None or not self.is_mask(mask) or not _is_of(
                    mask, arguments["query"], arguments["key"]):
                continue
            arguments |= {"attn_mask": None, "is_causal": True}
            keys, values = _grouped(arguments["key"]), _grouped(arguments["value"])
            if keys is not None and values is not None and keys[1] == values[1]:
                arguments |= {"key": keys[0], "value": values[0], "enable_gqa": True}
            names = ("query", "key", "value", "attn_mask")
            node.args = tuple(arguments.pop(name) for name in names)
            node.kwargs = arguments
            told += 1
        graph.eliminate_dead_code()
        return told


@contextlib.contextmanager
def without_cudnn() -> Iterator[None]:
    """Graphs that are compiled in this context do not call cuDNN's attention, unless the user has
    switched off the others."""
    is_used = cuda.cudnn_sdp_enabled()
    if cuda.flash_sdp_enabled() and cuda.mem_efficient_sdp_enabled():
        cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        cuda.enable_cudnn_sdp(is_used)
