"""The engine's methods in the shape of the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, final

from .._api import PATHS_BREAK, Options, RuleName, attribute, warn_if_same
from .._trees import Tensors
from ..attribution import Attribution, Promise, promised
from ..errors import OptionError
from ..execute._progress import ProgressOption
from ..paths import Path, Piece, stairs
from ..paths._paths import segment
from ..quadrature import Rule
from ._base import Method, Problem


@final
@dataclass(frozen=True)
class IntegratedGradients(Method):
    """Integrated gradients, to a tolerance: :func:`integrand.integrated_gradients` as a value.

    Attributes:
        tol: the relative error to integrate to.
        steps: a fixed number of gradients instead.
        rule: with steps, the rule.
        max_evaluations: gradients that one example may take.
    """

    name: ClassVar[str] = "integrated gradients"
    promises: ClassVar[tuple[Promise, ...]] = promised()
    tol: float = 0.01
    steps: int | None = None
    rule: RuleName | Rule | None = None
    max_evaluations: int = 4000

    def __post_init__(self) -> None:
        _options(self)

    def attribute(self, problem: Problem) -> Attribution:
        """Integrate along the lines from the baselines."""
        inputs = problem.function.inputs
        pieces = [segment(start, inputs, 1 / len(problem.starts)) for start in problem.starts]
        return _integrate(problem, pieces, self)


@final
@dataclass(frozen=True)
class PathMethod(Method):
    """Attribution along any path: :func:`integrand.path_attribution` as a value.

    Attributes:
        route: from a baseline and an input, one row per example each, to a path between them.
        tol: the relative error to integrate to.
        steps: a fixed number of gradients on every smooth piece instead.
        rule: with steps, the rule.
        max_evaluations: gradients that one example may take.
    """

    name: ClassVar[str] = "path method"
    promises: ClassVar[tuple[Promise, ...]] = promised(**PATHS_BREAK)
    route: Callable[[Tensors, Tensors], Path] = field(default=stairs, repr=False)
    tol: float = 0.01
    steps: int | None = None
    rule: RuleName | Rule | None = None
    max_evaluations: int = 4000

    def __post_init__(self) -> None:
        _options(self)
        if not callable(self.route):
            raise OptionError(f"got route={self.route!r}; expected a function from a baseline and an input to a path.")

    def attribute(self, problem: Problem) -> Attribution:
        """Integrate along the path from each baseline, and average."""
        tree, end = problem.function.tree, problem.function.inputs
        share = 1 / len(problem.starts)
        pieces = []
        for start in problem.starts:
            path = self.route(tree.build(start), tree.build(end))
            pieces += [Piece(share * p.weight, p.at, p.points, p.straight) for p in path.pieces(batched=True)]
        return _integrate(problem, pieces, self)


def _options(
    method: IntegratedGradients | PathMethod,
    memory: int | None = None,
    chunk: int | None = None,
    progress: ProgressOption = False,
) -> Options:
    """The method's settings, checked."""
    return Options.make(method.tol, method.steps, method.rule, method.max_evaluations, memory, chunk, 1, progress, False)


def _integrate(problem: Problem, pieces: list[Piece], method: IntegratedGradients | PathMethod) -> Attribution:
    warn_if_same(problem.starts, problem.function)
    options = _options(method, problem.memory, problem.chunk, problem.progress)
    meta = {"baselines": str(len(problem.starts))}
    groups = None if problem.labels is None else problem.function.tree.build(problem.labels)
    return attribute(problem.function, pieces, options, None, groups, meta, method.promises)
