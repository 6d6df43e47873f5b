# SPDX-License-Identifier: Apache-2.0
"""The scales of a function whose products are in 8 bits (docs/fp8.md), which last from call to
call.

Each operand has one scale, computed from the tensor's largest magnitudes in earlier calls. A
forward uses these scales and passes a copy of them to its backward, so other calls may run between
the two. The first forward and the first backward run three times: the first two runs determine the
scales for the third.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from coda_cpp import _core
from coda_cpp.session import Runners

NAMES = (_core.SCALES, _core.INVERSES)
_POWER_CODE = 128.0  # of the power of two next to the largest magnitude (next_scales_program)
_LEARNING = 2  # runs that only determine scales, before the run with results


class Scales:
    """The scales of one use of a function on one device."""

    def __init__(self, first: Sequence[float], device: torch.device) -> None:
        self.columns = _core.SCALE_COLUMNS * len(first)

        def vector(value: float) -> torch.Tensor:
            return torch.full((1, self.columns), value, dtype=torch.float32, device=device)

        self.scale, self.inverse, self.remembered = vector(1), vector(1), vector(0)
        self.largest = vector(0)
        values = torch.tensor(list(first), dtype=torch.float32, device=device)
        self.scale[0, ::_core.SCALE_COLUMNS] = values
        self.inverse[0, ::_core.SCALE_COLUMNS] = 1 / values
        self._sound = torch.ones(1, 1, device=device)
        self._knows_values = self._knows_gradients = False
        self._update = Runners(_core.Program.parse(_core.next_scales_program()).plan())

    def before_forward(self, run: Callable[[torch.Tensor, torch.Tensor], None]
                       ) -> tuple[torch.Tensor, torch.Tensor]:
        """The scales and inverses for a forward and its backward. `run` runs the forward with given
        scales and inverses."""
        if not self._knows_values:
            for _ in range(_LEARNING):
                self.largest.zero_()
                run(self.scale, self.inverse)
                self.remembered.zero_()
                self._next()
            self._knows_values = True
        else:
            self._next()
        self.largest.zero_()
        return self.scale.clone(), self.inverse.clone()

    def before_backward(self, scale: torch.Tensor, inverse: torch.Tensor,
                        run: Callable[[torch.Tensor, torch.Tensor], None]
                        ) -> tuple[torch.Tensor, torch.Tensor]:
        """The scales and inverses for a backward: its forward's, except that the first backward
        determines the scales of operands that only backwards have."""
        if self._knows_gradients:
            return scale, inverse
        is_new = self.largest == 0  # of the other operands, the forward has set `largest`
        for _ in range(_LEARNING):
            self.largest.masked_fill_(is_new, 0)
            run(scale, inverse)
            found = is_new & (self.largest > 0) & self.largest.isfinite()
            high, exponent = torch.frexp(self.largest)
            power = torch.ldexp(torch.where(high < 0.75, 0.5, 1.0), exponent)
            scale = torch.where(found, _POWER_CODE / power, scale)
            inverse = torch.where(found, power / _POWER_CODE, inverse)
        self._knows_gradients = True
        self.scale.copy_(torch.where(is_new, scale, self.scale))
        self.inverse.copy_(torch.where(is_new, inverse, self.inverse))
        return scale, inverse

    def _next(self) -> None:
        tensors = {"sound": self._sound, "largest": self.largest, "remembered": self.remembered,
                   "scale": self.scale, "inverse": self.inverse}
        self._update.run((("N", self.columns),), self.scale.device,
                         [tensors[info.name].data_ptr() for info in self._update.tensors])
