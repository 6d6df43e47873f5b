# SPDX-License-Identifier: Apache-2.0
"""Backends, and sessions that run plans on the caller's tensors."""

from __future__ import annotations

import collections
import dataclasses
import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from coda_cpp import _core, _precompile, _tensors
from coda_cpp._core import Error

_backends: dict[tuple[str, int], _core.Backend] = {}
_lock = threading.Lock()
# Cached sessions of a plan: launches and their arguments, 0.3 MB each, and no memory for tensors.
RUNNERS = 256


def backend(name: str = "cpu", device: int = -1, target: str = "") -> _core.Backend:
    """The backend of that name: "cpu", "gpu" (H100 or H200; untested: other NVIDIA GPUs since
    Ampere) or "reference" (float64).

    `target`: the kernels, "sm90" (H100, H200), "sm80" (GPUs since Ampere) or "sm89" (since Ada).
    If it is empty, CODA_GPU_TARGET or else the GPU decides. Each GPU and target has one backend
    object. Raises Error if the machine lacks the GPU or its libraries.
    """
    with _lock:
        key = (name, device, target)
        if key not in _backends:
            _backends[key] = _core.open_backend(name, device, target)
        return _backends[key]


@dataclasses.dataclass(frozen=True)
class TensorFacts:
    """A TensorInfo as plain Python values, because every call reads them."""

    name: str
    role: str
    dtype: str
    kind: str
    lanes: int
    rows: tuple[int, dict[str, int]]
    cols: tuple[int, dict[str, int]]
    is_read: bool


def facts_of(plan: _core.Plan) -> list[TensorFacts]:
    names = [field.name for field in dataclasses.fields(TensorFacts)]
    return [TensorFacts(*(getattr(info, name) for name in names)) for info in plan.tensors]


def size_of(terms: tuple[int, Mapping[str, int]], sizes: Mapping[str, int]) -> int:
    """The value of a size such as 2*I + 4. The values of symbols may be PyTorch's symbolic
    integers."""
    constant, factors = terms
    for symbol, factor in factors.items():
        if symbol not in sizes:
            raise Error(f"the size '{symbol}' has no value; give it in `sizes`")
        constant = constant + factor * sizes[symbol]
    return constant


def shape_of(tensor: _core.TensorInfo | TensorFacts, sizes: Mapping[str, int]) -> tuple[int, int]:
    """Rows and columns in memory; a partial has one for each 64 columns or rows."""
    rows, cols = size_of(tensor.rows, sizes), size_of(tensor.cols, sizes)
    if tensor.kind == "row_partial":
        return tensor.lanes * rows, (cols + 63) // 64
    if tensor.kind == "column_partial":
        return tensor.lanes * ((rows + 63) // 64), cols
    return rows, cols


class Runners:
    """The sessions of a plan with one phase: one for each combination of sizes, device and stream.

    On a GPU, only a plan's first run waits for the compiler, and only for its own kernels. Sessions
    for other sizes, and all that are made while kernels are compiled in the background, use kernels
    that are already loaded and give the same bits. When the fastest kernels for their sizes are
    compiled, they are replaced by sessions that use these.

    A session that is recorded into a CUDA graph is the graph's from then on, and lives as long as
    the process, because the graph has the addresses of its kernels and of its counters."""

    def __init__(self, plan: _core.Plan) -> None:
        self.tensors = facts_of(plan)
        self._plan = plan
        self._order = [tensor.name for tensor in self.tensors]
        self._kept: collections.OrderedDict[Any, _core.PlanRunner] = collections.OrderedDict()
        self._in_background: dict[Any, _precompile.Work] = {}  # of sessions to be replaced
        self._recorded: dict[Any, _core.PlanRunner] = {}
        self._lock = threading.Lock()

    def run(self, sizes: tuple[tuple[str, int], ...], device: Any, addresses: Sequence[int],
            strides: Sequence[int] = ()) -> None:
        """Runs the plan on PyTorch tensors, which must be on the device. `strides`: the elements
        between the rows of each tensor; empty: all tensors are dense. Temporary memory is allocated
        for this call only, so the cached sessions of other sizes hold no memory."""
        import torch

        stream = 0
        if device.type == "cuda":
            # As in Inductor: current_stream() creates an object, which takes longer.
            stream = torch._C._cuda_getCurrentRawStream(device.index)
        key = (sizes, device, stream)
        with self._lock:
            if stream and torch._C._cuda_isCurrentStreamCapturing():
                runner = self._to_record(key)
            else:
                runner = self._current(key)
        if not runner.lent_bytes:
            runner.run(addresses, stream, 0, strides)
            return
        if device.type == "cuda":
            # From PyTorch's caching allocator, so that its statistics include this memory. The
            # memory may be reused immediately after the call, because later work on this stream
            # runs after the plan.
            memory = torch.empty(runner.lent_bytes, dtype=torch.uint8, device=device)
            runner.run(addresses, stream, memory.data_ptr(), strides)
        else:
            _host_memory.run(runner, addresses, strides)

    def _current(self, key: Any) -> _core.PlanRunner:
        runner = self._kept.get(key)
        if runner is None or self._in_background and self._is_outdated(key):
            runner = self._kept[key] = self._made(key, is_first=runner is None)
            if len(self._kept) > RUNNERS:
                self._in_background.pop(self._kept.popitem(last=False)[0], None)
        self._kept.move_to_end(key)
        return runner

    def _to_record(self, key: Any) -> _core.PlanRunner:
        """The session for a run that a CUDA graph records. None can be made meanwhile, so one of an
        earlier run is taken, if possible of the same stream. Raises Error if there is none."""
        if key not in self._recorded:
            earlier = [key, *(known for known in self._kept if known[:2] == key[:2])]
            found = next((known for known in earlier if known in self._kept), None)
            if found is None:
                raise Error("a CUDA graph records this call, but no call with tensors of these "
                            "sizes has run before; run the same calls once before the recording")
            self._in_background.pop(found, None)
            self._recorded[key] = self._kept.pop(found)
        return self._recorded[key]

    def _is_outdated(self, key: Any) -> bool:
        """Whether faster kernels than the session's have been compiled since it was made."""
        if key not in self._in_background or not self._in_background[key].is_done:
            return False
        return self._in_background.pop(key).has_new

    def _made(self, key: Any, is_first: bool) -> _core.PlanRunner:
        sizes, device, _ = key
        on = backend("cpu")
        if device.type == "cuda":
            on = backend("gpu", device.index)
            if is_first and (self._kept or _precompile.is_working()):
                work = _precompile.start(
                    self._plan, dict(sizes), gpu_of(device), in_background=bool(self._kept))
                if work is not None and not work.is_done:
                    self._in_background[key] = work
        return _core.PlanRunner(self._plan, on, dict(sizes), self._order, is_lent=True)


def gpu_of(device: Any) -> _precompile.Gpu:
    import torch

    properties = torch.cuda.get_device_properties(device)
    return properties.multi_processor_count, properties.name, (properties.major, properties.minor)


def is_new_gpu(device: Any) -> bool:
    """Whether the device is a GPU on which this project has not run its kernels, so that
    torch.compile compares their results and times with PyTorch's before it uses them. Not if the
    user chose the kernels by CODA_GPU_TARGET."""
    return (device.type == "cuda" and not os.environ.get("CODA_GPU_TARGET")
            and gpu_of(device)[2][0] != 9)


class _HostMemory:
    """The temporary memory of all plans on the host, which use it one after another. It is never
    freed, because the system would have to clear new pages at each call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._memory: Any = None

    def run(self, runner: _core.PlanRunner, addresses: Sequence[int], strides: Sequence[int]
            ) -> None:
        import torch

        with self._lock:
            if self._memory is None or self._memory.numel() < runner.lent_bytes:
                self._memory = None
                self._memory = torch.empty(runner.lent_bytes, dtype=torch.uint8)
            runner.run(addresses, 0, self._memory.data_ptr(), strides)


_host_memory = _HostMemory()


class Session:
    """A plan prepared for given sizes, which runs on tensors of PyTorch, NumPy or DLPack.

        plan = coda_cpp.compile(graph, outputs=[("y", y)], seeds=[], gradients=[], sizes={"M": 8})
        session = coda_cpp.Session(plan, {"M": 8})
        session.run({"x": x, "w": w, "y": y})    # y is written

    A plan with a backward needs two sessions: see Plan.split(). Tensors must be dense and have the
    plan's types and shapes. On the "gpu" backend they must be CUDA tensors, and the work goes to
    PyTorch's current stream. A backend runs one thread at a time; other threads wait.
    """

    def __init__(self, plan: _core.Plan, sizes: Mapping[str, int], on: str = "cpu") -> None:
        self.plan = plan
        self.sizes = dict(sizes)
        self.on = on
        self.tensors = plan.tensors
        order = [tensor.name for tensor in self.tensors]
        self._runner = _core.PlanRunner(plan, backend(on), self.sizes, order)

    def run(self, tensors: Mapping[str, Any]) -> None:
        """Reads the inputs and writes the outputs. Raises Error, with the tensor's name, for a
        tensor that does not fit."""
        unknown = set(tensors) - {tensor.name for tensor in self.tensors}
        if unknown:
            raise Error(f"the plan has no tensor {', '.join(sorted(unknown))}; it takes "
                        + ", ".join(tensor.name for tensor in self.tensors))
        kept = [self._checked(info, tensors) for info in self.tensors]
        stream = 0
        if self.on == "gpu":
            import torch

            stream = torch.cuda.current_stream().cuda_stream
        self._runner.run([_tensors.address(tensor) for tensor in kept], stream)

    def _checked(self, info: _core.TensorInfo, tensors: Mapping[str, Any]) -> Any:
        if info.name not in tensors:
            raise Error(f"tensor '{info.name}' is missing")
        tensor = tensors[info.name]
        if not _tensors.is_torch(tensor):
            tensor = _tensors.as_array(tensor)
        shape = tuple(tensor.shape)
        expected = shape_of(info, self.sizes)
        given = shape if len(shape) == 2 else (1, *shape) if expected[0] == 1 else (*shape, 1)
        if given != expected or _tensors.dtype_name(tensor) != info.dtype:
            raise Error(f"tensor '{info.name}' is {info.dtype} {list(expected)}, but "
                        f"{tensor.dtype} {list(shape)} was given")
        if not _tensors.is_dense(tensor):
            raise Error(f"tensor '{info.name}' is not contiguous; give tensor.contiguous()")
        on_host = not _tensors.is_torch(tensor) or tensor.device.type == "cpu"
        if on_host != (self.on != "gpu"):
            raise Error(f"tensor '{info.name}' lies where the backend '{self.on}' cannot use it")
        if info.role == "output" and not _tensors.is_torch(tensor) and not tensor.flags.writeable:
            raise Error(f"tensor '{info.name}' is written, but the array given is read-only")
        return tensor
