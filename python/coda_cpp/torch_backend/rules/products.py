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


def _linear(region: Importer, node: fx.Node) -> Any:
    x, weight, bias = (*node.args, None)[:3]
    types = {region.dtype_of(x), value_of(weight).dtype}
    if x in region.known:
        types = {value_of(x).dtype, value_of(weight).dtype}
    if len(types) != 1 or region.storage not in (None, *types):
        raise NotUnderstood("its GEMMs have operands of several types")
    region.storage = types.pop()
    is_turned = bool(node.meta.get(layouts.TURNED))
    make = b.conv1d if is_turned else b.linear
    y = make(region.operand(x).value, region.weight(weight, is_turned))
    return y if bias is None else y + region.operand(bias, node).value


RULES = {layouts.LINEAR: _linear}
