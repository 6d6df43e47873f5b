# SPDX-License-Identifier: Apache-2.0
"""Makes a Hugging Face model return its loss without logits, so that no logits are stored."""

from __future__ import annotations

import functools
from typing import Any

import torch

from coda_cpp._core import Error


def without_logits(model: torch.nn.Module) -> torch.nn.Module:
    """Changes the model so that it returns no logits if it returns a loss, and returns the model.

    The logits (M * V values) are then not a result of the compiled graph and need not be stored.
    The model's result must have the fields `loss` and `logits`, as Hugging Face's models do;
    otherwise the call raises Error. Without labels the result does not change.
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
        # A new object: Dynamo would return the old fields of a changed one.
        return type(made)(**{name: made[name] for name in made.keys() if name != "logits"})

    model.forward = without
    return model
