"""Gradients for paths that are laid on the way."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ..attribution import Attribution
from ..backends.torch_function import TorchFunction
from ..errors import InputError, NonFiniteError
from ..memory import in_chunks
from ..paths.base import Path, Piece, same_shape
from ..paths.steering import Steered
from ..trees import Leaves
from .chunks import Chunks
from .runner import Runner


class Steering:
    """Lays paths along the gradients of a function, chunk by chunk, and counts them.

    Args:
        function: what is explained.
        memory: bytes that a chunk may hold, as for the integration.
        chunk: rows to run at a time.
    """

    def __init__(self, function: TorchFunction, *, memory: int | None = None, chunk: int | None = None) -> None:
        self.function = function
        input_bytes = sum(leaf[0].nbytes for leaf in function.inputs)
        self.chunks = Chunks.start(function.inputs[0].device, rows=chunk, memory=memory, input_bytes=input_bytes)
        self.runner = Runner(function, graphs=False)
        self.spent = 0  # gradients of each example

    def pieces(self, path: Path | Steered) -> list[Piece]:
        """The pieces of a path, laid first where it is steered."""
        if isinstance(path, Path):
            return list(path.pieces(batched=self.function.batched))
        laid = path.steer(self.gradient, batched=self.function.batched)
        if not isinstance(laid, Path):
            raise InputError(
                f"steer() of {type(path).__name__} returned a {type(laid).__name__}; expected a path, such as a Polyline "
                "through the points found."
            )
        return list(laid.pieces(batched=self.function.batched))

    def gradient(self, points: Leaves) -> Leaves:
        """Gradients at one point of each example."""
        function, tree = self.function, self.function.tree
        same_shape("the steered path's point", tree, tuple(points), tree, function.inputs)
        out = tuple(torch.empty_like(leaf) for leaf in points)

        def run(part: slice) -> tuple[slice, Tensor, Leaves]:
            rows = torch.arange(part.start, part.stop, device=points[0].device)
            with self.chunks.measuring(len(rows)):
                return part, *self.runner(tuple(point.detach().index_select(0, rows) for point in points), rows)

        for part, scores, found in in_chunks(run, slice(0, function.examples), self.chunks.untimed()):
            self._check(scores, found, part.start)
            for whole, gradients in zip(out, found, strict=True):
                whole[part] = gradients
        self.spent += 1
        return out

    def _check(self, scores: Tensor, gradients: Leaves, first: int) -> None:
        for row in range(len(scores)):
            for what, value in (("score", scores[row]), *(("gradient", leaf[row]) for leaf in gradients)):
                if not bool(value.isfinite().all()):
                    bad = value[~value.isfinite()].flatten()[0]
                    raise NonFiniteError(
                        f"the {what} holds {bad.item()} for example {first + row} at steering step {self.spent + 1} of the "
                        "path; expected finite numbers everywhere on it. Choose a baseline within the model's domain, or look "
                        "for overflow, log of 0 or division by 0 in the model."
                    )

    def rest(self, limit: int) -> int:
        """What is left of a limit on gradients; enough for a first look in any case."""
        return max(limit - self.spent, 17)

    def counted(self, result: Attribution) -> Attribution:
        """A result with the steering in its certificate."""
        if not self.spent:
            return result
        note = (
            f"finding the path took {self.spent} gradient{'s' if self.spent > 1 else ''}; the error is that of the sum along it"
        )
        examples = tuple(
            replace(
                one,
                gradients=one.gradients + self.spent,
                needed=None if one.needed is None else one.needed + self.spent,
                note=f"{one.note}; {note}" if one.note else note,
            )
            for one in result.certificate
        )
        return replace(result, certificate=replace(result.certificate, examples=examples))
