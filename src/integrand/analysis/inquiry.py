"""One question to the engine as a value: what an application asks about an input, for other methods and other baselines too."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..baselines.resolve import Baseline
from ..evaluation.progress import ProgressOption
from ..methods.method import Method
from ..trees import Tensors
from ..words import short_repr
from .baseline_diagnosis import diagnose
from .comparison_result import Comparison
from .diagnosis_result import Diagnosis
from .method_comparison import compare, usual_methods


@dataclass(frozen=True, eq=False)
class Inquiry:
    """What is asked about one input: the model, what it is given, what is explained, and in which parts.

    The applications make them: ``images.inquiry``, ``text.inquiry``, and ``inquiry`` of classifiers, translators, graders and
    networks on molecules.

    Attributes:
        model: what is explained.
        x: its input.
        baseline: where the path starts.
        call: how the model is called and what is scored: ``target``, ``args``, ``groups`` and so on, as in
            :func:`integrand.integrated_gradients`.
        label: what is explained, in words.
        features: a name for each group, where attributions are added up by groups.
        image: what the network sees, (H, W, 3) uint8, where that is a picture.
        candidates: other baselines by name; None for those that :func:`integrand.baselines.diagnose` knows.
        ends: ``low`` and ``high`` of a picture's values, and ``pixels``, from an input to a picture.
        classes: from the number of a class to its name.
    """

    model: Callable[..., Any]
    x: Tensors
    baseline: Baseline
    call: Mapping[str, Any]
    label: str
    features: tuple[str, ...] | None = None
    image: Any = None
    candidates: Mapping[str, Baseline] | None = None
    ends: Mapping[str, Any] = field(default_factory=dict)
    classes: Callable[[int], str] | None = None

    __repr__ = short_repr

    def compare_methods(
        self, *, tol: float = 0.01, methods: Sequence[Method | str] | None = None, progress: ProgressOption = None
    ) -> Comparison:
        """Several methods side by side; see :func:`integrand.compare`.

        Args:
            tol: the relative error to which integrated gradients are integrated.
            methods: which ones; by default those that take seconds.
            progress: a bar or a callback.
        """
        chosen = usual_methods(tol) if methods is None else methods
        return compare(self.model, self.x, self.baseline, methods=chosen, progress=progress, **self.call)

    def diagnose(self, *, tol: float = 0.05, progress: ProgressOption = None) -> Diagnosis:
        """Several baselines side by side; see :func:`integrand.baselines.diagnose`.

        Args:
            tol: the relative error to integrate to.
            progress: a bar or a callback.
        """
        ends = {name: value for name, value in self.ends.items() if name != "pixels"}
        given: dict[str, Any] = {"tol": tol, "classes": self.classes, "progress": progress, **ends, **self.call}
        return diagnose(self.model, self.x, self.candidates, **given)

    @property
    def view(self) -> dict[str, Any]:
        """The options with which both draw themselves: what is seen, and what parts are called."""
        return {"image": self.image, "features": self.features}
