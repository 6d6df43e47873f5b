# SPDX-License-Identifier: Apache-2.0
"""Recognises FlexAttention whose functions this package's attention has: masks that are causal,
windows, and packed documents; soft-caps; and score_mod that is a mask itself.

The operations of both functions, called with the indices of all scores, propose the form of the
mask, as mask_proof.py describes them: windows are numbers in the functions, and documents are
elements of a captured tensor that are compared. What the form needs of values, and that the blocks
of the block mask are those of mask_mod, is checked before each run (flex_checks.py). The soft-cap
and the scale are read from score_mod alone.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from coda_cpp.torch_backend import canonical, flex_checks, higher_order, written_out
from coda_cpp.torch_backend.flex_checks import Form, Mask
from coda_cpp.torch_backend.graph_edits import insert
from coda_cpp.torch_backend.layout import NotUnderstood, is_one, same
from coda_cpp.torch_backend.mask_proof import NOWHERE, Affine, Order, Prover, Truth, Unproven, Where
from coda_cpp.torch_backend.value_checks import Check, Checks, evaluation

_aten = torch.ops.aten
FLEX = torch.ops.higher_order.flex_attention
_LONG = 2**18  # stands for sizes that vary: longer than any window


@dataclasses.dataclass(frozen=True)
class Call:
    """FlexAttention that is attention of this form, whose scores are scaled and then capped
    (softcap 0: not)."""

    query: fx.Node
    key: fx.Node
    value: fx.Node
    form: Form
    scale: float
    softcap: float
    prove: Callable[[], None]  # adds the check; raises NotUnderstood if it does not hold
    documents: tuple  # equal for calls with the same documents
    _begins: fx.Graph | None
    _captured: Sequence[Any]

    def begins(self, before: fx.Node) -> fx.Node:
        """Inserts the operations that compute whether a document begins at each token of the batch,
        [batch * tokens]."""
        given = dict(zip(self._begins.find_nodes(op="placeholder"), (self.query, *self._captured),
                         strict=True))
        with before.graph.inserting_before(before):
            return before.graph.graph_copy(self._begins, given)


def recognised(node: fx.Node, call: fx.Node, around: Sequence[fx.Node], checks: Checks) -> Call:
    """What the stand-in `node` of the FlexAttention call `call` computes, if that can be proved.
    `around`: the calls of the blocks that contain it, the innermost first. Raises NotUnderstood."""
    try:
        return _recognised(node, call, around, checks)
    except NotUnderstood:
        raise
    except Unproven as why:
        raise NotUnderstood("its mask has no known form") from why
    except Exception as why:  # noqa: BLE001 (its functions may do anything)
        raise NotUnderstood(f"{type(why).__name__}: {why}") from why


def _recognised(node: fx.Node, call: fx.Node, around: Sequence[fx.Node], checks: Checks) -> Call:
    *tensors, score_body, blocks, scale, options, of_score, of_mask = call.args
    given = higher_order.given(node, call)
    query, key, value = (given[x] for x in tensors)
    values = [x.meta["val"] for x in (query, key, value)]
    (batch, _, queries, _), keys = values[0].shape, values[1].shape[2]
    if any(user.args[1] for user in node.users):
        raise NotUnderstood("its log-sum-exp is used")
    if type(scale) not in (int, float) or not 0 < scale < math.inf:
        raise NotUnderstood("its scale is not a positive number")
    if options.get("BACKEND", "AUTO") != "AUTO":
        raise NotUnderstood("the call asks for a backend")
    if not all(same(batch, x.shape[0]) for x in values):
        raise NotUnderstood("its keys are broadcast along the batch")
    score_mod, mask_mod = (getattr(call.graph.owning_module, one.target)
                           for one in (score_body, blocks[-1]))
    captured = [x if isinstance(x.meta["example_value"], torch.Tensor) else 0
                for x in (*of_mask, *of_score)]
    places = [*mask_mod.graph.find_nodes(op="placeholder")][4:] + [
        *score_mod.graph.find_nodes(op="placeholder")][5:]
    if any(place.users for place, x in zip(places, captured, strict=True) if x == 0):
        raise NotUnderstood("its functions read a number that varies")  # not just sizes of tensors
    graph = _functions(*values[:2], mask_mod, score_mod, len(of_mask), [
        given[x].meta["val"] if isinstance(x, fx.Node) else x for x in captured])
    (hides, score), prover = graph.output_node().args[0], Prover()
    masks, is_hiding = [hides], score.target in (_aten.where.self, _aten.where.ScalarOther)
    if is_hiding:
        condition, score, rest = score.args
        masks.append(condition)
        if prover.of(rest) != NOWHERE:
            raise NotUnderstood("its score_mod chooses between scores")
    capped = written_out.capped(score, graph.find_nodes(op="placeholder")[2])
    if capped is None:
        raise NotUnderstood("its score_mod is neither a soft-cap nor a mask")
    form = _proposed(prover, masks, queries, keys)
    mask = Mask(mask_mod, score_mod if is_hiding else None, len(of_mask))
    captured = captured if is_hiding else captured[:len(of_mask)]
    block = tuple(blocks[-3:-1])
    wanted = [*(_size(call, size) for size in (batch if mask.reads_batch else 1, queries, keys)),
              *blocks[2:10], *captured]
    # Equal layers have equal checks.
    proof = form, mask.text, block, tuple(_outside(x, around) for x in wanted)
    operands = [given[x] if isinstance(x, fx.Node) else x for x in captured]
    begins = _begins(mask, query, operands) if form.has_documents else None
    return Call(query, key, value, form, float(scale * capped[0]), capped[1],
                lambda: checks.require(proof, lambda: Check(
                    functools.partial(flex_checks.has_form, form, mask, block),
                    *evaluation(wanted, around))),
                (proof, str(batch)), begins, operands)


def copy_operands(node: fx.Node, call: fx.Node) -> None:
    """Copies the query and the key of the stand-in of a call that stays, on a CPU: there Inductor's
    FlexAttention fails for views of an operator's result."""
    new = {x: x for x in node.all_input_nodes}
    for x in {higher_order.given(node, call)[x]: None for x in call.args[:2]}:
        if x.meta["val"].device.type == "cpu" and x.op != "placeholder":
            new[x] = insert(node, _aten.contiguous.default, x)
    node.args = fx.map_arg(node.args, new.__getitem__)


def _traced(run: Callable, *given: Any) -> fx.Graph:
    with given[0].fake_mode:
        return make_fx(run, pre_dispatch=True)(*given).graph


def _functions(query: torch.Tensor, key: torch.Tensor, mask_mod: Callable, score_mod: Callable,
               count: int, captured: Sequence[Any]) -> fx.Graph:
    """The operations of mask_mod and score_mod, called with the indices of all scores at once. Of
    the captured tensors, the first `count` are mask_mod's. The third input is the score."""
    def fixed(x: torch.Tensor, *shape: Any, dtype: torch.dtype) -> torch.Tensor:
        return torch.empty([size if isinstance(size, int) else _LONG for size in shape],
                           dtype=dtype, device=x.device)

    def run(query: torch.Tensor, key: torch.Tensor, score: torch.Tensor, *captured: Any) -> Any:
        where = [torch.arange(size, device=query.device).view(-1, *[1] * (3 - i))
                 for i, size in enumerate((*query.shape[:3], key.shape[2]))]
        return mask_mod(*where, *captured[:count]), score_mod(score, *where, *captured[count:])

    with query.fake_mode:
        given = [fixed(x, *x.shape, dtype=x.dtype) if isinstance(x, torch.Tensor) else x
                 for x in (query, key, *captured)]
        given.insert(2, fixed(query, dtype=torch.float32))
    graph = _traced(run, *given)
    canonical.rewrite(graph)
    return graph


def _begins(mask: Mask, query: fx.Node, captured: Sequence[Any]) -> fx.Graph:
    found = _traced(lambda query, *captured: mask.begins(
        query.shape[0], query.shape[2], query.device, captured).flatten(), *fx.map_arg(
        (query, *captured), lambda node: node.meta["val"]))
    if found.find_nodes(op="get_attr"):
        raise NotUnderstood("its functions have constant tensors")
    return found


def _proposed(prover: Prover, masks: Sequence[fx.Node], queries: Any, keys: Any) -> Form:
    """The form of a mask that requires all of `masks`. Compared elements of a captured tensor are
    taken for numbers of documents, or for numbers that ascend with the tokens of a document."""
    found, shape = Where(), torch.broadcast_shapes((1, 1, 1, 1), *(
        mask.meta["val"].shape for mask in masks))
    for mask in masks:
        found = found.both(prover.where(mask).over(shape))
    if any(isinstance(one, Truth) for one in found):  # FlexAttention's blocks may know them
        raise Unproven
    orders = {one for one in found if isinstance(one, Order)}
    rest = {one for one in found - orders if one.least(shape) < 0}
    if not rest and not orders:
        return Form()
    # How many tokens in front of the query a key may be, by its place or by elements.
    distances = [one.constant for one in rest if one.factors == (0, 0, -1, 1)]
    if len(distances) + (Affine(0, (0, 0, 1, -1)) in rest) < len(rest) or is_one(queries) or (
            not same(queries, keys)):
        raise Unproven
    by_elements = [one.other.constant - one.one.constant for one in orders if any(
        place.factors[2] for place in one.one.place)]
    windows = [distance + 1 for distance in (*distances, *by_elements) if distance > 0]
    return Form(True, min(windows, default=0), 0 in by_elements)


def _size(call: fx.Node, size: Any) -> Any:
    """The size as a number, or as an input of the call's graph."""
    if isinstance(size, int):
        return size
    for node in call.graph.find_nodes(op="placeholder"):
        found = node.meta.get("example_value")
        if isinstance(found, torch.SymInt) and same(found, size):
            return node
    raise NotUnderstood("a length is not an input of its graph")


def _outside(node: Any, around: Sequence[fx.Node]) -> Any:
    """What the node, if it is an input of a block, is in the outermost graph."""
    for call in around:
        if not isinstance(node, fx.Node) or node.op != "placeholder":
            break
        node = call.args[1 + list(node.graph.find_nodes(op="placeholder")).index(node)]
    return node
