# SPDX-License-Identifier: Apache-2.0
"""Keeps messages that transformers logs once from ending a graph.

Dynamo ends the graph at any call of a logger. Models of transformers have such calls between the
last layer and the loss: GPT-2 reports the loss that it takes by default, and models with
checkpointing report that they use no cache. The head and the loss would then lie in different
graphs, and all logits in memory. Only functions in this list of Dynamo's can be skipped, so a
compiled model does not log these messages.
"""

import logging

import torch._dynamo.config


def skip_messages() -> None:
    """To be called before a model is compiled. Does nothing without transformers, which adds the
    method."""
    warning_once = getattr(logging.Logger, "warning_once", None)
    if warning_once is not None:
        torch._dynamo.config.ignore_logging_functions.add(warning_once)
