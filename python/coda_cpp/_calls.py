# SPDX-License-Identifier: Apache-2.0
"""Runs a call of a function on tensors: allocates the results and runs a session on the addresses
of all tensors.

Everything that does not depend on the values of tensors is computed and checked once for each
combination of shapes, types and device, and cached (Bounded). A later call with the same
combination only allocates, collects addresses and runs.
"""

from __future__ import annotations

import contextlib
import itertools
import operator
import threading
from collections.abc import Sequence
from typing import Any

import torch
from torch._C._dynamo.guards import _empty_strided_cpu, _empty_strided_cuda

from coda_cpp import _core, _eight_bits, _tensors
from coda_cpp._core import Error
from coda_cpp.function import Function, Phases, as_matrix, bind
from coda_cpp.session import Runners, shape_of

TORCH_DTYPES = {name: dtype for dtype, name in _tensors.torch_dtypes().items()}
_KEPT = 2048  # cached calls of an operator, some kilobytes each
Shape = tuple[Any, torch.dtype]


class Bounded:
    """A thread-safe cache that removes its oldest entry when it is full."""

    def __init__(self, most: int = _KEPT) -> None:
        self._most = most
        self._kept: dict[Any, Any] = {}
        self._lock = threading.Lock()
        self.get = self._kept.get

    def put(self, key: Any, value: Any) -> None:
        with self._lock:
            self._kept[key] = value
            while len(self._kept) > self._most:
                del self._kept[next(iter(self._kept))]

    def __len__(self) -> int:
        return len(self._kept)


def facts(tensors: Sequence[torch.Tensor]) -> tuple:
    """Everything on which a call depends, except values. Strides are not included: see _dense."""
    return tuple([(tensor.shape, tensor.dtype, tensor.device) for tensor in tensors])


def result_shapes(function: Function, tensors: Sequence[torch.Tensor], needs: int
                  ) -> tuple[list[Shape], dict[str, Any]]:
    """The shapes of the results and then of the saved tensors; and the sizes, which may be
    symbolic. Raises Error for tensors that do not fit."""
    sizes, leads = function.match(tensors)
    made = [(function.output_shape(output, sizes, leads), TORCH_DTYPES[output.dtype])
            for output in function.outputs]
    made += [(shape_of(info, sizes), TORCH_DTYPES[info.dtype])
             for info in function.phases(needs).saved]
    return made, sizes


def gradient_shapes(function: Function, tensors: Sequence[torch.Tensor], needs: int
                    ) -> tuple[dict[str, Shape], dict[str, Any]]:
    """The shapes of the gradients by name, as rows and columns; and the sizes. Raises Error for
    tensors that do not fit."""
    phases = function.phases(needs)
    infos = {info.name: info for info in phases.backward.tensors}
    sizes: dict[str, Any] = {}
    for name, tensor in zip(phases.backward_inputs, tensors, strict=True):
        info = infos[name]
        if _tensors.dtype_name(tensor) != info.dtype or tensor.device != tensors[0].device:
            raise Error(f"{function.name}, backward: '{name}' is {tensor.dtype} on "
                        f"{tensor.device}, but must be {info.dtype} on {tensors[0].device}")
        if info.kind != "dense":
            continue
        _, found = as_matrix(tuple(tensor.shape), info.rows, info.cols)
        for terms, size in zip((info.rows, info.cols), found, strict=True):
            if not bind(terms, size, sizes):
                raise Error(f"{function.name}, backward: '{name}' has the shape "
                            f"{list(tensor.shape)}")
    return {info.name: (shape_of(info, sizes), TORCH_DTYPES[info.dtype])
            for info in infos.values()
            if info.role == "output" and info.name != _core.MAGNITUDES}, sizes


def gradient_names(function: Function, needs: int) -> list[str]:
    return [f"grad_to_{given.name}" for i, given in enumerate(function.inputs) if needs >> i & 1]


def _strides(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a contiguous tensor."""
    sizes = [max(size, 1) for size in reversed(shape[1:])]
    following = itertools.accumulate(sizes, operator.mul, initial=1)
    return tuple(following)[::-1] if shape else ()


class _Call:
    """One phase for tensors of given shapes. Its tensors are the given ones, the results, and the
    largest magnitudes if products are in 8 bits. A name in both lists refers to the result."""

    def __init__(self, function: Function, needs: int, device: torch.device,
                 runners: Runners, given: Sequence[str], made: Sequence[tuple[str, Shape]],
                 sizes: dict[str, Any]) -> None:
        self.function, self.needs = function, needs
        self.phases: Phases = function.phases(needs)
        self._device = device
        self._sizes = tuple(sizes.items())
        self._is_empty = 0 in sizes.values()
        self._made = [(shape, _strides(shape), dtype) for _, (shape, dtype) in made]
        names = [*given, *(name for name, _ in made), _core.MAGNITUDES]
        self._place = {name: i for i, name in enumerate(names)}
        self._runners = runners
        self._order = [self._place[info.name] for info in runners.tensors]

    def _allocate(self) -> list[torch.Tensor]:
        # The functions of Inductor's code, which take half of the time of torch.empty_strided. On a
        # GPU they allocate on the current one.
        if self._device.type == "cpu":
            return [_empty_strided_cpu(*facts) for facts in self._made]
        is_current = torch.cuda.current_device() == self._device.index
        with contextlib.nullcontext() if is_current else torch.cuda.device(self._device):
            return [_empty_strided_cuda(*facts) for facts in self._made]

    def _run(self, memory: Sequence[torch.Tensor]) -> None:
        addresses = [memory[i].data_ptr() for i in self._order]
        # A GPU's copy engine needs addresses that are multiples of 16 bytes; on a CPU any element's
        # address will do.
        if self._device.type == "cuda" and any([address % 16 for address in addresses]):
            memory = [t.clone() if t.data_ptr() % 16 else t for t in memory]
            addresses = [memory[i].data_ptr() for i in self._order]
        try:
            self._runners.run(self._sizes, self._device, addresses)
        except Error as error:
            raise Error(f"{self.function.name}: {error}") from None


def _dense(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [tensor.contiguous() for tensor in tensors]


class Forward(_Call):
    """A forward. The backward finds its function by `key`."""

    def __init__(self, function: Function, key: str, tensors: Sequence[torch.Tensor], needs: int
                 ) -> None:
        shapes, sizes = result_shapes(function, tensors, needs)
        names = [output.name for output in function.outputs]
        names += [info.name for info in function.phases(needs).saved]
        super().__init__(function, needs, tensors[0].device, function.phases(needs).forward,
                         [given.name for given in function.inputs],
                         list(zip(names, shapes, strict=True)), sizes)
        self.key = key
        self._inputs = len(function.inputs)

    def run(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The results, then the saved tensors."""
        made = self._allocate()
        if self._is_empty:
            for output, tensor in zip(self.function.outputs, made):
                tensor.fill_(output.of_no_rows)
            for tensor in made[len(self.function.outputs):]:
                tensor.zero_()
            return made
        memory = _dense(tensors[:self._inputs]) + made
        if self.phases.first_scales:
            self._find_scales(memory)
        self._run(memory)
        return made

    def _find_scales(self, memory: list[torch.Tensor]) -> None:
        scales = self.function.scales(self.needs, self._device)
        memory.append(scales.largest)
        places = [self._place[name] for name in _eight_bits.NAMES]

        def run(*vectors: torch.Tensor) -> None:
            tried = list(memory)
            for place, vector in zip(places, vectors):
                tried[place] = vector
            self._run(tried)

        for place, vector in zip(places, scales.before_forward(run), strict=True):
            memory[place].copy_(vector)


class Backward(_Call):
    def __init__(self, function: Function, tensors: Sequence[torch.Tensor], needs: int) -> None:
        shapes, sizes = gradient_shapes(function, tensors, needs)
        phases = function.phases(needs)
        given = phases.backward_inputs
        super().__init__(function, needs, tensors[0].device, phases.backward, given,
                         list(shapes.items()), sizes)
        made = list(shapes)
        self._gradients = [made.index(name) for name in gradient_names(function, needs)]
        # Gradients that the forward begins and the backward completes in place.
        self._begun = [(made.index(name), i) for i, name in enumerate(given) if name in shapes]

    def run(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The requested gradients, in the order of the inputs."""
        made = self._allocate()
        if self._is_empty:
            return [made[i].zero_() for i in self._gradients]
        memory = _dense(tensors) + made

        def run(*vectors: torch.Tensor) -> None:
            for name, vector in zip(_eight_bits.NAMES, vectors):
                memory[self._place[name]] = vector
            for to, begun in self._begun:
                made[to].copy_(tensors[begun])
            self._run(memory)

        vectors: Sequence[torch.Tensor] = ()
        # Some backwards contain no GEMM and so have no scale inputs: if the loss is computed in
        # blocks of rows, the forward also computes the gradients, and the backward only multiplies
        # them by the upstream gradient.
        if all(name in self._place for name in _eight_bits.NAMES):
            scales = self.function.scales(self.needs, self._device)
            memory.append(scales.largest)
            vectors = scales.before_backward(
                *(tensors[self._place[name]] for name in _eight_bits.NAMES), run)
        run(*vectors)
        return [made[i] for i in self._gradients]
