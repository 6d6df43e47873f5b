# SPDX-License-Identifier: Apache-2.0
"""How PyTorch runs attention.

The graph that computes a mask may prove which keys it hides (mask_proof.py). A mask that hides
nothing is dropped. A causal mask is replaced by is_causal. With the mask of packed documents, or a
window, attention runs within documents (documents.py). All three reach PyTorch's fast paths. With a
mask of padding, attention runs without the hidden keys (padding.py), where coda_cpp::attention is
faster than PyTorch's kernels (attention_choice.py). Any other mask is kept. It is copied if its
last dimension is not contiguous, because fast paths need that: in T5's bias the heads are
contiguous instead.

Attention that is written out as products and a softmax (written_out.py) becomes one of these calls.
PyTorch has no fast path for a soft-cap, a window or sinks, so attention with one of these becomes a
call of coda_cpp::attention (_attention.py). On GPUs on which coda_cpp::attention is faster than
PyTorch's kernels, it also replaces scaled_dot_product_attention without a mask, except for small
calls.

Where lengths vary, cuDNN is not used: it compiles a graph for every new length. On an H200 with
PyTorch 2.11 this takes 120 ms of a step, of which the GPU works 20.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.backends import cuda

from coda_cpp._attention import ATTENTION
from coda_cpp.torch_backend import (
    documents, flex, higher_order, mask_proof, padded_formula, padding, value_checks,
    written_out)
from coda_cpp.torch_backend.attention_choice import Call, Choice, has_documents
from coda_cpp.torch_backend.graph_edits import insert, replace, size_argument
from coda_cpp.torch_backend.layout import NEEDS, NotUnderstood, is_one, same

_aten = torch.ops.aten
# In an input's meta:
FULL, CAUSAL, PACKED, PADDED = "coda_full", "coda_causal", "coda_packed", "coda_padded"
DOCUMENTS, PADDING = "documents", "padding"  # kinds of bounds
_ATTENTION = _aten.scaled_dot_product_attention.default
# Operations of a forward, without regard to is_causal, from which on calls become calls of
# coda_cpp::attention: an H200 then takes 0.1 ms or more, and the host starts an operator of
# Python's in less.
_MUCH_WORK = 1e11
_MUCH_MASKED_WORK = 2e10  # with a mask, PyTorch's kernels compute hidden scores too


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


def _is_of(mask: fx.Node, query: Any, key: Any, broadcast: int = 2) -> bool:
    """Whether the mask has an element for each score, possibly broadcast along the dimensions in
    front of the last `broadcast` ones."""
    mask, query, key = (node.meta["val"].shape for node in (mask, query, key))
    scores = (*query[:-1], key[-2])
    return len(mask) <= len(scores) and all(
        same(size, of) or place >= broadcast and is_one(size)
        for place, (size, of) in enumerate(zip(mask[::-1], scores[::-1])))


@dataclasses.dataclass
class Told:
    """Numbers of calls: without a mask that hides nothing; with is_causal instead of a mask; within
    documents; without the keys of padding; those that were written out and are now one operation;
    those of PyTorch's that are now coda_cpp::attention; and those of FlexAttention that no longer
    are."""

    full: int = 0
    causal: int = 0
    packed: int = 0
    padded: int = 0
    written_out: int = 0
    own: int = 0
    flex: int = 0


class Masks:
    """The masks of a graph that hide nothing, the causal ones, those of packed documents, and those
    of padding."""

    def __init__(self, graph: fx.Graph, calls: Mapping[int, fx.Node], around: Sequence[fx.Node],
                 checks: value_checks.Checks, choice: Choice) -> None:
        """`calls`: the calls of stand-ins. `around`: the calls of the blocks that contain the
        graph, the innermost first. `checks` gets those of FlexAttention and of masks that modules
        keep."""
        self._graph, self._calls, self._around, self._checks = graph, calls, around, checks
        self._choice = choice
        self._begins: dict[Any, tuple[fx.Node, ...]] = {}  # bounds, by flex.Call.documents
        self.refused: dict[fx.Node, str] = {}  # FlexAttention that stays, and why
        self._written = mask_proof.written(graph)
        self._prover = mask_proof.Prover(self._written)
        self._bounds: dict[tuple[fx.Node, str], tuple[fx.Node, ...]] = {}
        self._shown: dict[fx.Node, fx.Node] = {}  # negated masks, by masks that are True if hidden
        # A mask with one row for all queries, and the number of queries: the mask expanded to them.
        self._expanded: dict[tuple[fx.Node, str], fx.Node] = {}
        self._copies: dict[fx.Node, fx.Node] = {}
        # Masks that are inputs and whose bounds became inputs, and the kind of these.
        self.given: list[tuple[fx.Node, str]] = []

    def is_full(self, node: fx.Node) -> bool:
        """Whether the mask is True, or 0.0, everywhere."""
        if node.op == "placeholder":
            return bool(node.meta.get(FULL))
        return mask_proof.is_full(self._prover, node)

    def is_causal(self, node: fx.Node) -> bool:
        """Whether node[..., i, j] is the causal mask: True, or 0.0, only for j <= i."""
        if node.op == "placeholder":
            return bool(node.meta.get(CAUSAL))
        return mask_proof.is_causal(self._prover, node)

    def _has_causal_values(self, mask: fx.Node) -> bool:
        """Whether the mask is causal by the values of tensors that a module has, such as a buffer
        of ones and zeros. A check looks at them again if they change."""
        value = mask.meta["val"]
        if mask.meta.get(NEEDS) or value.dim() < 2 or not same(*value.shape[-2:]):
            return False
        try:
            self._checks.require(mask, lambda: value_checks.Check(
                _is_causal_tensor, *value_checks.evaluation(
                    [mask], self._around, of_modules=True, value_key="val")), of_modules=True)
        except NotUnderstood:
            return False
        return True

    def packed(self, node: fx.Node) -> mask_proof.Packed | None:
        if node.op == "placeholder":
            return node.meta.get(PACKED)
        return mask_proof.packed(self._prover, node)

    def padded(self, node: fx.Node) -> mask_proof.Padded | None:
        if node.op == "placeholder":
            return node.meta.get(PADDED)
        return mask_proof.padded(self._prover, node)

    def bounds(self, mask: fx.Node, kind: str = DOCUMENTS) -> tuple[fx.Node, ...]:
        """The results of documents.BOUNDS for a mask of packed documents, or those of padding.SPANS
        for a mask of padding. If the mask is an input of the graph, they become inputs too, behind
        all others."""
        key = mask, kind
        if key not in self._bounds:
            if mask.op == "placeholder":
                self._bounds[key] = self._new_inputs(mask, kind)
            else:
                self._bounds[key] = (_bounds_of(mask) if kind == DOCUMENTS else
                                     _spans_of(mask, self.padded(mask)))
        return self._bounds[key]

    def _dense(self, mask: fx.Node, reader: fx.Node) -> fx.Node:
        """The mask with its last dimension dense in memory: itself, or a copy in front of the first
        reader. A dimension along which the mask is repeated, other than the last, stays so."""
        value = mask.meta["val"]
        if mask in self._written or not value.dim() or is_one(value.shape[-1]) or is_one(
                value.stride(-1)):
            return mask
        if mask not in self._copies:
            made = mask
            for dim in range(value.dim() - 1):
                if isinstance(value.stride(dim), int) and value.stride(dim) == 0:
                    made = insert(reader, _aten.slice.Tensor, made, dim, 0, 1)
            made = insert(reader, _aten.contiguous.default, made)
            if not all(map(same, made.meta["val"].shape, value.shape)):
                made = insert(reader, _aten.expand_as.default, made, mask)
            self._copies[mask] = made
        return self._copies[mask]

    def _new_inputs(self, mask: fx.Node, kind: str) -> tuple[fx.Node, ...]:
        *_, last = self._graph.find_nodes(op="placeholder")
        rows = _rows(mask.meta["val"].shape)
        if kind == DOCUMENTS:
            values = documents.BOUNDS(
                mask.meta["val"].new_empty(math.prod(rows), dtype=torch.bool))
        else:
            values = padding.SPANS(mask.meta["val"].new_empty(rows, dtype=torch.bool),
                                   *_distances(self.padded(mask)))
        names = ("bounds", "spans", "sizes") if kind == DOCUMENTS else ("order", "spans")
        made = []
        for name, value in zip(names, values):
            with self._graph.inserting_after(last):
                last = self._graph.placeholder(name)
            last.meta["val"] = value
            made.append(last)
        self.given.append((mask, kind))
        return tuple(made)

    def tell(self) -> Told:
        """Drops masks of attention calls that hide nothing, replaces causal ones by is_causal, and
        passes heads of keys and values without repetition. Calls with masks of packed documents
        become calls of documents.ATTENTION, those with masks of padding of padding.ATTENTION.
        Attention that is written out becomes one call."""
        told = Told()
        self._graph.eliminate_dead_code()  # FlexAttention's log-sum-exp
        for node in list(self._graph.nodes):
            if node.target in written_out.PRODUCTS:
                told.written_out += self._call_of_formula(node)
            if node.target is higher_order.SUBGRAPH:
                told.flex += self._call_of_flex(node)  # its result is visited later
            if node.target is not _ATTENTION:
                continue
            arguments = dict(zip(("query", "key", "value", "attn_mask", "dropout_p", "is_causal"),
                                 node.args)) | node.kwargs
            mask = arguments.get("attn_mask")
            if mask is None or not _is_of(mask, arguments["query"], arguments["key"], 0):
                told.own += mask is None and self._call_own(node, arguments)
                continue
            is_whole = _is_of(mask, arguments["query"], arguments["key"])
            if self.is_full(mask):
                told.full += 1
                told.own += self._call_without_mask(node, arguments)
            elif is_whole and (self.is_causal(mask) or self._has_causal_values(mask)):
                told.causal += 1
                told.own += self._call_without_mask(node, arguments | {"is_causal": True})
            elif is_whole and (found := self.packed(mask)) is not None and (
                    not found.has_documents and self._is_own_behind(
                        arguments, causal=True, window=_window(found))):
                _narrow(arguments)
                _put_own(node, arguments, True, _window(found), 0.0, _scale(arguments))
                told.packed += 1
            elif is_whole and found is not None and _may_pack(arguments):
                _narrow(arguments)
                self._pack(node, arguments, self.bounds(mask), found)
                told.packed += 1
            elif is_whole and found is None and _is_boolean(mask) and (
                    padded := self.padded(mask)) and same(
                    *(of.meta["val"].shape[0] for of in (arguments["query"], mask))
                    ) and self._is_own_behind(arguments, causal=padded.behind == 0,
                                              padding=_distances(padded)):
                self._drop_padding(node, arguments, mask)
                told.padded += 1
            elif (dense := self._dense(mask, node)) is not mask:
                node.replace_input_with(mask, dense)
        self._graph.eliminate_dead_code()
        return told

    def _call_without_mask(self, node: fx.Node, arguments: dict[str, Any]) -> bool:
        """Whether the call became one of coda_cpp::attention."""
        _narrow(arguments)
        arguments["attn_mask"] = None
        if self._call_own(node, arguments):
            return True
        names = ("query", "key", "value", "attn_mask")
        node.args = tuple(arguments.pop(name) for name in names)
        node.kwargs = arguments
        return False

    def _call_own(self, node: fx.Node, arguments: dict[str, Any]) -> bool:
        """Replaces a call without a mask by coda_cpp::attention, if that is faster. Returns whether
        it was replaced."""
        if not self._is_own(arguments, _MUCH_WORK, causal=bool(arguments.get("is_causal"))):
            return False
        _put_own(node, arguments, bool(arguments.get("is_causal")), 0, 0.0, _scale(arguments))
        return True

    def _is_own(self, arguments: dict[str, Any], least: float, **facts: Any) -> bool:
        """Whether coda_cpp::attention is faster for these operands, if the call has at least so
        many operations on an H200. `facts`: of the Call."""
        if any(arguments[name] in self._written for name in ("query", "key", "value")):
            return False
        query, key, value = (arguments[name].meta["val"] for name in ("query", "key", "value"))
        may_call = not (
            arguments.get("dropout_p")
            or not isinstance(arguments.get("scale"), (int, float, type(None)))
            or not query.dim() == key.dim() == value.dim() == 4
            or not all(map(same, key.shape, value.shape))
            or not same(query.shape[2], key.shape[2])
            or not isinstance(query.shape[1], int) or not isinstance(key.shape[1], int)
            or key.shape[1] != query.shape[1] and not arguments.get("enable_gqa")
            or not (cuda.flash_sdp_enabled() and cuda.cudnn_sdp_enabled()))
        return may_call and self._choice.is_own(_call(arguments, **facts), least)

    def _is_own_behind(self, arguments: dict[str, Any], **facts: Any) -> bool:
        """Whether coda_cpp::attention is faster than PyTorch's kernels that read the mask."""
        narrow = dict(arguments)
        _narrow(narrow)
        return not arguments.get("is_causal") and self._is_own(narrow, _MUCH_MASKED_WORK, **facts)

    def _pack(self, node: fx.Node, arguments: dict[str, Any], bounds: tuple[fx.Node, ...],
              found: mask_proof.Packed, softcap: float = 0.0) -> None:
        """Replaces a call by one of documents.ATTENTION."""
        query = arguments["query"].meta["val"]
        is_own = bool(softcap) or query.device.type == "cpu" or self._choice.is_own(_call(
            arguments, causal=True, window=_window(found), has_documents=found.has_documents))
        turned = _turned(node, arguments)
        rows = [insert(node, _aten.flatten.using_ints, x, 0, 1) for x in turned]
        made = insert(node, documents.ATTENTION, *rows, *bounds, _scale(arguments),
                      _window(found) - 1, softcap, is_own)
        whole = insert(node, _aten.view_as.default, insert(node, operator.getitem, made, 0),
                       turned[0])
        replace(node, insert(node, _aten.transpose.int, whole, 1, 2))

    def _drop_padding(self, node: fx.Node, arguments: dict[str, Any], mask: fx.Node) -> None:
        _narrow(arguments)
        _put_back(node, insert(
            node, padding.ATTENTION, *_turned(node, arguments), *self.bounds(mask, PADDING),
            self.padded(mask).behind == 0, 0.0, _scale(arguments)))

    def _call_of_formula(self, node: fx.Node) -> bool:
        """Replaces the node by one call, if it is the result of attention that is written out, and
        its mask is proven. Returns whether it was replaced."""
        found = written_out.formula(node, self._written)
        if found is None or found.mask is not None and not _is_of(
                found.mask, found.query, found.key, 1):
            return False
        if found.mask is not None:
            mask = self._shown_whole(found)
            if mask is None:
                return False
            found = dataclasses.replace(found, mask=mask)
        if found.mask is not None and self.is_full(found.mask):
            found = dataclasses.replace(found, mask=None)
        node = written_out.with_heads(node, found)
        weights, dtype = node.args[0], node.meta["val"].dtype
        arguments = {"query": found.query, "key": found.key, "value": found.value,
                     "attn_mask": found.mask, "scale": found.scale}
        _narrow(arguments)
        arguments.pop("enable_gqa", None)
        if found.sinks in self._written or any(
                arguments[name] in self._written for name in ("query", "key", "value")):
            return False
        for name in ("key", "value"):
            if arguments[name].meta["val"].dtype != dtype:
                arguments[name] = insert(node, _aten.to.dtype, arguments[name], dtype)
        query, key, value = (arguments[name] for name in ("query", "key", "value"))
        is_causal = found.mask is not None and (
            self.is_causal(found.mask) or self._has_causal_values(found.mask))
        packed = None if is_causal or found.mask is None else self.packed(found.mask)
        window = _window(packed)
        is_packed = packed is not None and packed.has_documents

        def is_own() -> bool:
            return same(query.meta["val"].shape[2], key.meta["val"].shape[2]) and (
                self._choice.is_own(_call(
                    arguments, causal=found.mask is not None, window=window,
                    softcap=found.softcap, has_documents=is_packed,
                    has_sinks=found.sinks is not None, instead_of="formula")))

        if found.mask is not None and not is_causal and packed is None and (
                self._put_padded(node, arguments, found)):
            pass
        elif found.sinks is not None:
            if not (found.mask is None or is_causal or packed is not None and (
                    not is_packed or _fits_documents(arguments))) or not is_own():
                return False
            spans = self.bounds(found.mask)[1] if is_packed else None
            _put_own(node, arguments, found.mask is not None, window, found.softcap, found.scale,
                     spans, _sinks(node, found))
        elif not found.softcap and (is_causal or found.mask is None):
            is_grouped = not same(key.meta["val"].shape[1], query.meta["val"].shape[1])
            node.target, node.args = _ATTENTION, (query, key, value, None, 0.0, is_causal)
            node.kwargs = {"scale": found.scale, "enable_gqa": is_grouped}
        elif packed is not None and not found.softcap and _may_pack(arguments):
            self._pack(node, arguments, self.bounds(found.mask), packed)
        elif is_packed and found.softcap and _fits_documents(arguments) and is_own():
            self._pack(node, arguments, self.bounds(found.mask), packed, found.softcap)
        elif (found.mask is None or is_causal or packed is not None and not is_packed) and is_own():
            _put_own(node, arguments, found.mask is not None, window, found.softcap, found.scale)
        else:
            return False
        written_out.erase(weights)
        return True

    def _shown_whole(self, found: written_out.Formula) -> fx.Node | None:
        """The formula's mask, as one that shows keys and has an element for each query and key."""
        mask, tokens = found.mask, found.query.meta["val"].shape[2]
        if found.hides:
            if mask.op == "placeholder" or mask in self._written:
                return None
            if mask not in self._shown:
                self._shown[mask] = insert(mask.next, _aten.bitwise_not.default, mask, like=mask)
            mask = self._shown[mask]
        value = mask.meta["val"]
        if value.dim() == 4 and is_one(value.shape[2]) and not is_one(tokens) and not (
                mask.op == "placeholder" or mask in self._written):
            key = mask, str(tokens)
            rows = size_argument(mask.next, tokens)
            if key not in self._expanded and rows is not None:
                self._expanded[key] = insert(
                    mask.next, _aten.expand.default, mask, [-1, -1, rows, -1], like=mask)
            mask = self._expanded.get(key, mask)
        return mask if _is_of(mask, found.query, found.key) else None

    def _put_padded(self, node: fx.Node, arguments: Mapping[str, Any], found: written_out.Formula
                    ) -> bool:
        """Replaces a formula whose mask is one of padding, if the operator is faster. Returns
        whether it was replaced."""
        query, key, mask = (of.meta["val"] for of in (found.query, found.key, found.mask))
        padded, is_added = self.padded(found.mask), found.fill is None
        if padded is None or found.mask in self._written or mask.dtype == torch.float64:
            return False
        hidden = padded.hidden if is_added else found.fill
        if not padded_formula.is_exact(hidden, is_added, found.sinks is not None) or (
                not same(query.shape[0], mask.shape[0]) or not same(query.shape[2], key.shape[2])
                ) or not self._choice.is_own(_call(
                    arguments, causal=padded.behind == 0, softcap=found.softcap,
                    padding=_distances(padded), has_sinks=found.sinks is not None,
                    instead_of="formula"), _MUCH_MASKED_WORK):
            return False
        sinks = [] if found.sinks is None else [_sinks(node, found)]
        made = insert(
            node, padded_formula.FORMULA, *_turned(node, arguments),
            *self.bounds(found.mask, PADDING), padded.behind == 0, found.softcap, found.scale,
            hidden, is_added, *sinks)
        replace(node, insert(node, _aten.transpose.int, made, 1, 2))
        return True

    def _call_of_flex(self, node: fx.Node) -> bool:
        """Replaces a stand-in of FlexAttention by one call, if its functions and its block mask are
        understood. Returns whether it was replaced."""
        call = self._calls[node.args[2]]
        if call.target is not flex.FLEX:
            return False
        try:
            self._replace(node, flex.recognised(node, call, self._around, self._checks))
        except NotUnderstood as why:
            self.refused[node] = str(why)
            return False
        return True

    def _replace(self, node: fx.Node, found: flex.Call) -> None:
        """Replaces a stand-in of FlexAttention."""
        if self._written & {found.query, found.key, found.value}:
            raise NotUnderstood("its operands are written in place")
        (out,) = node.users
        arguments = {"query": found.query, "key": found.key, "value": found.value}
        _narrow(arguments)
        names, dtype = ("query", "key", "value"), out.meta["val"].dtype  # autocast converts
        for name in names:
            if arguments[name].meta["val"].dtype != dtype:
                arguments[name] = insert(node, _aten.to.dtype, arguments[name], dtype)
        query, key, value = (arguments[name].meta["val"] for name in names)
        form, is_plain = found.form, not found.softcap and not found.form.window
        may_call = same(query.shape[2], key.shape[2]) and self._choice.is_own(_call(
            arguments | {"scale": found.scale}, causal=form.causal, window=form.window,
            softcap=found.softcap, has_documents=form.has_documents, instead_of="flex"))
        if form.has_documents and not all(map(same, key.shape, value.shape)) or not (
                may_call or (has_documents(query) and not found.softcap if form.has_documents
                             else is_plain)):
            raise NotUnderstood("there is no kernel for its window, documents or soft-cap")
        found.prove()
        if form.has_documents:
            if found.documents not in self._begins:
                begins = found.begins(node)
                made = insert(node, documents.BOUNDS, begins, like=begins)
                self._begins[found.documents] = tuple(
                    insert(node, operator.getitem, made, i, like=begins) for i in range(3))
            self._pack(out, arguments | {"scale": found.scale}, self._begins[found.documents],
                       mask_proof.Packed(form.window - 1 if form.window else None), found.softcap)
        elif is_plain:
            out.target, out.args = _ATTENTION, (
                *map(arguments.get, names), None, 0.0, form.causal)
            out.kwargs = {"scale": found.scale,
                          "enable_gqa": not same(query.shape[1], key.shape[1])}
        else:
            _put_own(out, arguments, form.causal, form.window, found.softcap, found.scale)
        self._graph.erase_node(node)


def _put_own(node: fx.Node, arguments: dict[str, Any], causal: bool, window: int, softcap: float,
             scale: float, spans: fx.Node | None = None, *sinks: fx.Node) -> None:
    _put_back(node, insert(node, ATTENTION, *_turned(node, arguments), spans, causal, window,
                           softcap, scale, *sinks))


def _turned(node: fx.Node, arguments: Mapping[str, Any]) -> list[fx.Node]:
    """The operands as [batch, tokens, heads, size]."""
    return [insert(node, _aten.transpose.int, arguments[name], 1, 2)
            for name in ("query", "key", "value")]


def _put_back(node: fx.Node, made: fx.Node) -> None:
    """Replaces the node by the first result of `made`, [batch, tokens, heads, size]."""
    replace(node, insert(node, _aten.transpose.int, insert(
        node, operator.getitem, made, 0), 1, 2))


def _sinks(node: fx.Node, found: written_out.Formula) -> fx.Node:
    return insert(node, _aten.to.dtype, insert(
        node, _aten.flatten.using_ints, found.sinks), torch.float32)


def _is_causal_tensor(mask: torch.Tensor) -> bool:
    seen = mask if mask.dtype == torch.bool else mask == 0
    hidden = ~seen.new_ones(seen.shape[-2:]).tril()
    return bool((seen != hidden).all()) and (mask.dtype == torch.bool or all(
        map(mask_proof.is_least, mask.masked_select(hidden).unique().tolist())))


def _is_boolean(mask: fx.Node) -> bool:
    return mask.meta["val"].dtype == torch.bool


def _call(arguments: dict[str, Any], **facts: Any) -> Call:
    """`facts`: all that the arguments do not say."""
    operands = [arguments[name] for name in ("query", "key", "value")]
    return Call(*(node.meta["val"] for node in operands),
                needs=any(node.meta.get(NEEDS) for node in operands), scale=_scale(arguments),
                **facts)


def _window(packed: mask_proof.Packed | None) -> int:
    return 0 if packed is None or packed.window is None else packed.window + 1


def _scale(arguments: dict[str, Any]) -> float:
    scale = arguments.get("scale")
    return arguments["query"].meta["val"].shape[3] ** -0.5 if scale is None else float(scale)


def _narrow(arguments: dict[str, Any]) -> None:
    keys, values = _grouped(arguments["key"]), _grouped(arguments["value"])
    if keys is not None and values is not None and keys[1] == values[1]:
        arguments |= {"key": keys[0], "value": values[0], "enable_gqa": True}


def _rows(shape: Sequence[Any]) -> tuple[Any, Any]:
    """The batch and the tokens of a mask."""
    return (shape[0] if len(shape) == 4 else 1), shape[-1]


def _may_pack(arguments: dict[str, Any]) -> bool:
    return has_documents(arguments["query"].meta["val"]) and _fits_documents(arguments)


def _fits_documents(arguments: dict[str, Any]) -> bool:
    query, key, value, mask = (arguments[name].meta["val"] for name in (
        "query", "key", "value", "attn_mask"))
    scale = arguments.get("scale")
    return (query.dim() == key.dim() == value.dim() == 4
            and all(map(same, value.shape, key.shape))
            and same(query.shape[0], _rows(mask.shape)[0]) and not arguments.get("dropout_p")
            and not arguments.get("is_causal")
            and (scale is None or isinstance(scale, (int, float))))


def _bounds_of(mask: fx.Node) -> tuple[fx.Node, ...]:
    """A document begins where a token does not see the token in front of it, and with each row."""
    def put(target: Any, *arguments: Any) -> fx.Node:
        return insert(before, target, *arguments, like=mask)

    before = mask.next
    rows = put(_aten.select.int, mask, 1, 0) if mask.meta["val"].dim() == 4 else put(
        _aten.unsqueeze.default, mask, 0)
    ones = put(_aten.to.dtype, put(_aten.ones_like.default, put(
        _aten.select.int, rows, -1, 0)), torch.int64)
    places = put(_aten.sub.Tensor, put(_aten.cumsum.default, ones, -1), 1)
    in_front = put(_aten.clamp_min.default, put(_aten.sub.Tensor, places, 1), 0)
    seen = put(_aten.squeeze.dim, put(
        _aten.gather.default, rows, -1, put(_aten.unsqueeze.default, in_front, -1)), -1)
    is_other = put(_aten.eq.Scalar if mask.meta["val"].dtype == torch.bool else _aten.ne.Scalar,
                   seen, 0)
    begins = put(_aten.bitwise_or.Tensor, is_other, put(_aten.eq.Scalar, places, 0))
    made = put(documents.BOUNDS, put(_aten.flatten.using_ints, begins))
    return tuple(put(operator.getitem, made, i) for i in range(3))


def _distances(padded: mask_proof.Padded) -> tuple[int, int]:
    before, behind = (-1 if of is None else of for of in (padded.before, padded.behind))
    return before, behind


def _spans_of(mask: fx.Node, padded: mask_proof.Padded) -> tuple[fx.Node, ...]:
    def put(target: Any, *arguments: Any) -> fx.Node:
        return insert(before, target, *arguments, like=mask)

    before = mask.next
    rows = put(_aten.select.int, mask, 1, 0)
    seen = put(_aten.diagonal.default, rows, 0, 1, 2)
    made = put(padding.SPANS, seen if _is_boolean(mask) else put(_aten.eq.Scalar, seen, 0),
               *_distances(padded))
    return tuple(put(operator.getitem, made, i) for i in range(2))


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
