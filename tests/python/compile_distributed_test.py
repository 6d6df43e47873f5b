# SPDX-License-Identifier: Apache-2.0
"""torch.compile(model, backend="coda") under DDP and FSDP2, two processes on a CPU: the gradients
are those of both processes' batches together."""

import copy
import logging
import os
import tempfile
import types
import unittest
from unittest import mock

import torch
import torch._dynamo
from torch import distributed, multiprocessing
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from coda_cpp.torch_backend.ddp_buckets import too_small_buckets
from compiled import Recorder, error, ids, llama


def _expected(model, batches):
    for batch in batches:
        (model(input_ids=batch, labels=batch).loss / len(batches)).backward()
    return [p.grad for p in model.parameters()]


def _ddp(model, recorder):
    distributed._DEFAULT_FIRST_BUCKET_BYTES = 20000  # so that a small model has several buckets
    return torch.compile(DistributedDataParallel(model, bucket_cap_mb=0.02), backend=recorder)


def _fsdp(model, recorder):
    """Layer by layer, as FSDP2 is compiled: its hooks stand between the layers."""
    for layer in model.model.layers:
        layer.compile(backend=recorder)
        fully_shard(layer)
    fully_shard(model)
    return model


def _gradients(rank, kind):
    """The error of the gradients, the number of regions in each graph, and the log messages."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = llama()
    reference = copy.deepcopy(model)
    batches = [ids() for _ in range(2)]
    # In DDP a bucket may end between a norm and the linear layers after it: these layers then have
    # nothing to be fused with, so "strict" is for FSDP only.
    recorder = Recorder(strict=kind == "fsdp")
    said, handler = [], logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())
    logging.getLogger("coda_cpp").addHandler(handler)
    called = {"ddp": _ddp, "fsdp": _fsdp}[kind](model, recorder)
    called(input_ids=batches[rank], labels=batches[rank]).loss.backward()
    gradients = [p.grad.full_tensor() if kind == "fsdp" else p.grad for p in model.parameters()]
    fused = [len(report.fused) for report in recorder.reports]
    logging.getLogger("coda_cpp").removeHandler(handler)
    return error(gradients, _expected(reference, batches)), fused, said


def _train(rank, meeting, results):
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", f"file://{meeting}", rank=rank, world_size=2)
    results.put({kind: _gradients(rank, kind) for kind in ("ddp", "fsdp")})
    distributed.destroy_process_group()


class SeveralProcesses(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """Both ways in the same two processes, which take seconds to begin."""
        results = multiprocessing.get_context("spawn").SimpleQueue()
        with tempfile.TemporaryDirectory() as folder:
            multiprocessing.spawn(_train, (os.path.join(folder, "meeting"), results), 2)
        cls.found = [results.get() for _ in range(2)]

    def _fused(self, kind):
        for found in self.found:
            self.assertLess(found[kind][0], 2e-5)
        return self.found[0][kind][1]

    def test_ddp_in_buckets(self):
        fused = self._fused("ddp")
        self.assertGreater(len(fused), 2)  # graphs end where buckets do
        self.assertGreaterEqual(sum(fused), 5)
        said = [text for text in self.found[0]["ddp"][2] if "bucket_cap_mb" in text]
        self.assertEqual(len(said), 1)  # one warning that the buckets are too small

    def test_fsdp_layer_by_layer(self):
        self.assertEqual(self._fused("fsdp"), [2])  # one graph serves all layers
        self.assertEqual(self.found[0]["fsdp"][2], [])  # no log message


class Buckets(unittest.TestCase):
    """What is said of those of DistributedDataParallel: which size leaves layers whole."""

    def _said(self, bytes_, model, mode=True):
        ddp = types.SimpleNamespace(module=model, bucket_bytes_cap=bytes_)
        with (mock.patch.object(DistributedDataParallel, "_get_active_ddp_module", lambda: ddp),
              mock.patch.object(torch._dynamo.config, "optimize_ddp", mode)):
            return too_small_buckets()

    def test_larger_ones_are_advised_where_a_layer_fills_several(self):
        model = torch.nn.Module()
        model.layers = torch.nn.ModuleList(torch.nn.Linear(1024, 1024) for _ in range(2))
        layer = 4 * 1024 * 1025
        self.assertIn("a layer has 4 MB of gradients", self._said(layer - 1, model))
        self.assertIn("bucket_cap_mb=5", self._said(layer - 1, model))
        self.assertEqual(self._said(layer, model), "")
        self.assertEqual(self._said(1, model, "no_optimization"), "")
        self.assertEqual(self._said(1, torch.nn.Linear(8, 8)), "")  # no layers
        model.requires_grad_(False)
        self.assertEqual(self._said(1, model), "")
        self.assertEqual(too_small_buckets(), "")  # no DistributedDataParallel


if __name__ == "__main__":
    unittest.main()
