# SPDX-License-Identifier: Apache-2.0
"""Keeps messages that transformers logs once from ending a graph.

Dynamo ends the graph at any call of a logger. Models of transformers have such calls between the
last layer and the loss: GPT-2 reports the loss that it takes by default, and models with
checkpointing report that they use no cache. The head and the loss would then lie in different
graphs, and all logits in memory. Only functions in this list of Dynamo's can be skipped, so a
compiled model does not log these messages.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch._dynamo.config


class _Named(str):
    """The name of a function that equals the function. PyTorch 2.11 logs the list as JSON, which
    has strings but no functions."""

    __slots__ = ("function",)
    function: Callable

    def __new__(cls, function: Callable) -> _Named:
        made = super().__new__(cls, function.__name__)
        made.function = function
        return made

    def __eq__(self, other: object) -> bool:
        return self.function is (other.function if isinstance(other, _Named) else other)

    def __hash__(self) -> int:
        return hash(self.function)

    def __deepcopy__(self, _: Any) -> _Named:
        return self  # PyTorch copies its configuration


def skip_messages() -> None:
    """To be called before a model is compiled. Does nothing without transformers, which adds the
    method."""
    warning_once = getattr(logging.Logger, "warning_once", None)
    skipped = torch._dynamo.config.ignore_logging_functions
    if warning_once is not None:
        skipped.add(_Named(warning_once))
