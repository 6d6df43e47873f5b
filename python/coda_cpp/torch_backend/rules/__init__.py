# SPDX-License-Identifier: Apache-2.0
"""How operations of PyTorch's become values of a Graph: a rule for each, by what it is about.

A rule takes the Importer of a region and the node, and gives the value. It raises NotUnderstood,
with the reason, for arguments that it does not cover: the operation then stays PyTorch's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coda_cpp.torch_backend.rules import (
    activations, elementwise, losses, norms, products, views)
from coda_cpp.torch_backend.rules.views import FREE

__all__ = ["FREE", "RULES"]

RULES: dict[Any, Callable[[Any, Any], Any]] = {
    **elementwise.RULES, **activations.RULES, **views.RULES, **norms.RULES, **products.RULES,
    **losses.RULES}
