# SPDX-License-Identifier: Apache-2.0
"""A Hugging Face model that returns no logits beside its loss, so that none are stored."""

from __future__ import annotations

import functools
from typing import Any

import torch

from coda_cpp._core import Error


def without_logits(model: torch.nn.Module) -> torch.nn.Module:
    """The model, which from now on returns no logits where it returns a loss.

    They are then no result of the compiled graph, and need not be stored: M * V values. The model's
    result has the fields `loss` and `logits`, as Hugging Face's have; without labels it stays as it
    is. Raises Error, at the call, for a result that has no such fields.
    """
    forward = model.forward

    @functools.wraps(forward)
    def without(*arguments: Any, **named: Any) -> Any:
        made = forward(*arguments, **named)
        if not hasattr(made, "loss") or not hasattr(made, "logits"):
            raise Error("without_logits: the model's result has no fields 'loss' and 'logits'; "
                        "give a model that returns them, as Hugging Face's do with return_dict")
        if made.loss is None:
            return made
        # A new one: Dynamo would return what a changed one has held.
        return type(made)(**{name: made[name] for name in made.keys() if name != "logits"})

    model.forward = without
    return model
