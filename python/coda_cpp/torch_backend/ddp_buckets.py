# SPDX-License-Identifier: Apache-2.0
"""Warns if DistributedDataParallel's buckets are too small. torch.compile splits the graph where a
bucket of gradients is full, to exchange the bucket during the backward, and nothing is fused across
a split. If a bucket holds a whole layer, the graph is split only between layers."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

_MB = 2**20  # DistributedDataParallel's unit


def _gradient_bytes(module: nn.Module) -> int:
    return sum(p.numel() * p.element_size() for p in module.parameters() if p.requires_grad)


def _layer_bytes(model: nn.Module) -> int:
    """The bytes of the gradients of the largest layer, where a layer is an element of a ModuleList.
    0 if there is no list."""
    layers = (layer for part in model.modules() if isinstance(part, nn.ModuleList)
              for layer in part)
    return max(map(_gradient_bytes, layers), default=0)


def too_small_buckets() -> str:
    """Why larger buckets make the DDP model that is being compiled faster, and the size to use.
    Empty if larger buckets do not help, or if no DDP model is being compiled."""
    ddp = DistributedDataParallel._get_active_ddp_module()
    if ddp is None or torch._dynamo.config.optimize_ddp not in (True, "ddp_optimizer"):
        return ""
    layer = _layer_bytes(ddp.module)
    if layer <= ddp.bucket_bytes_cap:
        return ""
    return (f"DistributedDataParallel has buckets of {ddp.bucket_bytes_cap / _MB:.3g} MB, and a "
            f"layer has {layer / _MB:.3g} MB of gradients: the graph is cut within layers, where "
            f"fusion ends; give it bucket_cap_mb={math.ceil(layer / _MB)}")
