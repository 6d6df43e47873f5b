# SPDX-License-Identifier: Apache-2.0
"""The rules that turn PyTorch's operations into values of a Graph, grouped by topic.

A rule takes the Importer of a region and the node, and returns the value. For arguments that it
does not support it raises NotUnderstood with the reason, and PyTorch runs the operation.
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
