# SPDX-License-Identifier: Apache-2.0
"""What DistributedDataParallel's buckets cost: torch.compile cuts the graph wherever a bucket of
gradients is full, so that they are exchanged while the backward goes on, and no fusion reaches over
a cut. With buckets of a layer the cuts lie between layers."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

_MB = 2**20  # as DistributedDataParallel counts


def _gradient_bytes(module: nn.Module) -> int:
    return sum(p.numel() * p.element_size() for p in module.parameters() if p.requires_grad)


def _layer_bytes(model: nn.Module) -> int:
    """Of the gradients of the largest layer: of what stands in a list. 0: there is no list."""
    layers = (layer for part in model.modules() if isinstance(part, nn.ModuleList)
              for layer in part)
    return max(map(_gradient_bytes, layers), default=0)


def too_small_buckets() -> str:
    """Of the model under DDP that is being compiled: why larger buckets make it faster, and which;
    empty where they would not, or there is none."""
    ddp = DistributedDataParallel._get_active_ddp_module()
    if ddp is None or torch._dynamo.config.optimize_ddp not in (True, "ddp_optimizer"):
        return ""
    layer = _layer_bytes(ddp.module)
    if layer <= ddp.bucket_bytes_cap:
        return ""
    return (f"DistributedDataParallel has buckets of {ddp.bucket_bytes_cap / _MB:.3g} MB, and a "
            f"layer has {layer / _MB:.3g} MB of gradients: the graph is cut within layers, where "
            f"fusion ends; give it bucket_cap_mb={math.ceil(layer / _MB)}")
