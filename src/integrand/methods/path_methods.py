"""Integrated gradients and its relatives along other paths, as methods: values with one call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar, final

import torch

from ..api import RuleName
from ..attribution import Attribution
from ..certificate import Promise, promised
from ..engine import PATHS_BREAK, EngineOptions, attribute, warn_if_same
from ..errors import OptionError
from ..evaluation.path_steering import Steering
from ..evaluation.progress import ProgressOption
from ..paths.base import Path, Piece, segment, stairs
from ..paths.blur import Blur, check_blur
from ..paths.guided import Guided, check_guided
from ..quadrature.fixed_rules import Rule
from ..trees import Tensors
from .method import Method, Problem


@final
@dataclass(frozen=True)
class IntegratedGradients(Method):
    """Integrated gradients, to a tolerance: :func:`integrand.integrated_gradients` as a value.

    Attributes:
        tol: the relative error to integrate to.
        steps: a fixed number of gradients instead.
        rule: the quadrature rule, where ``steps`` is given.
        max_evaluations: how many gradients one example may take.
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
        rule: the quadrature rule, where ``steps`` is given.
        max_evaluations: how many gradients one example may take.
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
            if not isinstance(path, Path):
                raise OptionError(
                    f"the route gave a {type(path).__name__}; expected a path of integrand.paths, or an object with end() and "
                    "pieces(batched=...). For a path that is laid on the way use GuidedIG or integrand.path_attribution."
                )
            pieces += [replace(piece, weight=share * piece.weight) for piece in path.pieces(batched=True)]
        return _integrate(problem, pieces, self)


@final
@dataclass(frozen=True)
class BlurIG(Method):
    """Blur-integrated gradients: along :class:`integrand.paths.Blur`, from a blurred image to the image.

    The blurred image takes the place of the baseline, which is not used.

    Attributes:
        sigma: the standard deviation of the blur at the start, in pixels; if not given, 50/224 of the shorter side.
        dims: the dimensions to blur along, counted from the last.
        tol: the relative error to integrate to.
        max_evaluations: how many gradients one example may take.
    """

    name: ClassVar[str] = "blur integrated gradients"
    promises: ClassVar[tuple[Promise, ...]] = Blur.promises
    sigma: float | None = None
    dims: tuple[int, ...] = (-2, -1)
    tol: float = 0.01
    max_evaluations: int = 4000

    def __post_init__(self) -> None:
        _options(self)
        check_blur(self.sigma, self.dims)

    def attribute(self, problem: Problem) -> Attribution:
        """Integrate through scale space."""
        function = problem.function
        path = Blur(function.tree.build(function.inputs), self.sigma, self.dims)
        blurred = path.pieces(batched=True)
        rows = torch.arange(problem.examples, device=problem.device)
        starts = blurred[0].points_at(torch.zeros(len(rows), device=problem.device), rows)
        return _integrate(replace(problem, starts=(starts,)), list(blurred), self)


@final
@dataclass(frozen=True)
class GuidedIG(Method):
    """Guided integrated gradients: along :class:`integrand.paths.Guided`, which moves the flattest features first.

    Attributes:
        steps: how often the gradient is looked at from one anchor to the next.
        fraction: the share of the features that move at a time; with 1 these are integrated gradients.
        anchors: how many points of the straight line the path is made to pass through.
        tol: the relative error to integrate to.
        max_evaluations: how many gradients one example may take.
    """

    name: ClassVar[str] = "guided integrated gradients"
    promises: ClassVar[tuple[Promise, ...]] = Guided.promises
    steps: int = Guided.steps
    fraction: float = Guided.fraction
    anchors: int = Guided.anchors
    tol: float = 0.01
    max_evaluations: int = 4000

    def __post_init__(self) -> None:
        _options(self)
        check_guided(self.steps, self.fraction, self.anchors)

    def attribute(self, problem: Problem) -> Attribution:
        """Lay a path from each baseline, integrate along all of them, and average."""
        tree, end = problem.function.tree, problem.function.inputs
        # The points of a single example have a row already.
        steering = Steering(replace(problem.function, batched=True), memory=problem.memory, chunk=problem.chunk)
        share = 1 / len(problem.starts)
        pieces = []
        for start in problem.starts:
            path = Guided(tree.build(start), tree.build(end), self.steps, self.fraction, self.anchors)
            pieces += [replace(piece, weight=share) for piece in steering.pieces(path)]
        rest = replace(self, max_evaluations=steering.rest(self.max_evaluations))
        return steering.counted(_integrate(problem, pieces, rest))


PathMethods = IntegratedGradients | PathMethod | BlurIG | GuidedIG


def _options(
    method: PathMethods,
    memory: int | None = None,
    chunk: int | None = None,
    progress: ProgressOption = False,
) -> EngineOptions:
    """The settings of a path method as options of the engine, which refuses what makes no sense."""
    steps, rule = (method.steps, method.rule) if isinstance(method, IntegratedGradients | PathMethod) else (None, None)
    limit = method.max_evaluations
    return EngineOptions.make(
        tol=method.tol, steps=steps, rule=rule, max_evaluations=limit, memory=memory, chunk=chunk, progress=progress
    )


def _integrate(problem: Problem, pieces: list[Piece], method: PathMethods) -> Attribution:
    warn_if_same(problem.starts, problem.function)
    options = _options(method, problem.memory, problem.chunk, problem.progress)
    meta = {"baselines": str(len(problem.starts))}
    groups = None if problem.labels is None else problem.function.tree.build(problem.labels)
    return attribute(problem.function, pieces, options, None, groups, meta, method.promises)
