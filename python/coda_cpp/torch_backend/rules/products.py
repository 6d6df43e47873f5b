# SPDX-License-Identifier: Apache-2.0
"""Linear layers: the products of a region."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from coda_cpp import builders as b
from coda_cpp.torch_backend import layout as layouts
from coda_cpp.torch_backend.layout import NotUnderstood, value_of

if TYPE_CHECKING:
    from coda_cpp.torch_backend.importer import Importer

_aten = torch.ops.aten


def _product(region: Importer, node: fx.Node) -> Any:
    x, weight = (node.args[1], node.args[2]) if node.target is layouts.ADDMM else node.args[:2]
    bias = node.args[0] if node.target is layouts.ADDMM else (*node.args, None)[2]
    types = {region.dtype_of(x), value_of(weight).dtype}
    if x in region.known:
        types = {value_of(x).dtype, value_of(weight).dtype}
    if len(types) != 1 or region.storage not in (None, *types):
        raise NotUnderstood("its products have operands of several types")
    if node.kwargs:
        raise NotUnderstood("a product with factors")
    region.storage = types.pop()
    make = b.linear if node.target is layouts.LINEAR else b.conv1d
    y = make(region.operand(x).value, region.weight(weight))
    return y if bias is None else y + region.operand(bias, node).value


RULES = {op: _product for op in layouts.PRODUCTS}
