"""What ``result.widget()`` offers to choose, and how each application explains its input again.

The widget itself is :func:`integrand.render.widget.explorer`; here are the choices: the surest classes, the methods that are
quick enough to be chosen while somebody waits, and a few tolerances.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..methods import Method, by_name
from ..render.notebook import LOW, TALL
from ..render.widget import Choice, Control, Sight, explorer
from ..words import percent

if TYPE_CHECKING:
    from anywidget import AnyWidget

    from .images.result import Answer, Explanation
    from .molecules.result import MoleculeAttribution
    from .questions.result import WordAttribution
    from .translation.result import Alignment

USUAL = "integrated-gradients"

LABELS = {
    USUAL: "integrated gradients",
    "blur-ig": "blur integrated gradients",
    "guided-ig": "guided integrated gradients",
    "gradient-x-input": "gradient × input",
    "deeplift": "DeepLift",
    "lrp": "LRP",
    "guided-backprop": "guided back-propagation",
    "shapley": "Shapley values",
}
"""The methods that a widget may offer, by the names of :func:`integrand.methods.by_name`, as people write them."""

PATHS = {USUAL: "straight", "blur-ig": "blur", "guided-ig": "guided"}
"""Methods that explained photos know as paths."""

OF_PHOTOS = (USUAL, "blur-ig", "guided-ig", "gradient-x-input", "deeplift", "lrp", "guided-backprop")
OF_EYES = (USUAL, "guided-ig", "gradient-x-input", "deeplift", "lrp", "guided-backprop")
OF_QUESTIONS = (USUAL, "gradient-x-input", "deeplift", "lrp", "shapley")
OF_MOLECULES = (USUAL, "gradient-x-input", "deeplift", "lrp")
"""Those that take seconds: of a molecule's atoms and pairs, Shapley values take minutes."""

TOLERANCES = (0.2, 0.05, 0.01, 0.001)

SUREST = 5
"""The classes that can be chosen: so many of the surest, and the one that was explained."""


def photo_widget(
    found: Explanation,
    answers: Sequence[Answer],
    methods: Sequence[str] = OF_PHOTOS,
    told: Callable[[Explanation], Explanation] = lambda again: again,
) -> AnyWidget:
    """The widget of an explained photo, or eye.

    Args:
        found: what it shows at first.
        answers: those that can be explained.
        methods: names of methods.
        told: tells a new explanation as this one is told.
    """
    from .images.result import asked_again

    if found.starts is None:
        raise InputError(
            "got an explanation that does not hold its baseline; expected one that images.explain or Grader.examine made. "
            "Explain the photo again."
        )
    by_index = {str(one.index): one for one in answers}

    def explain(choice: Choice) -> Sight:
        name = choice["method"]
        method = None if name in PATHS else _method(name, choice)
        how: dict[str, Any] = {"method": method} if method is not None else {"tol": _tolerance(choice)}
        case = asked_again(found, by_index[choice["class"]], PATHS.get(name, "straight"))
        again = told(case.explained(**how))
        if method is not None:
            again = replace(again, notice=" ".join(filter(None, (again.notice, method_note(method)))), path="")
        return _photo_sight(again)

    usual = next((name for name, path in PATHS.items() if path == found.path), USUAL)
    controls, chosen = _controls(
        [(str(one.index), one.label, one.probability) for one in answers],
        str(found.answer.index),
        methods,
        found.result.certificate.only.tol,
        usual,
    )
    return explorer(controls, chosen, _photo_sight(found), explain, height=TALL)


def question_widget(found: WordAttribution) -> AnyWidget:
    """The widget of an explained question."""
    classifier = found.explained_by
    if classifier is None:
        raise _forgotten("questions.load(...).explain(text)")

    def explain(choice: Choice) -> Sight:
        name, scale = choice["method"], found.scale
        options: dict[str, Any] = {"tol": _tolerance(choice)}
        if name != USUAL:
            options["method"] = _method(name, choice)
        [again] = classifier.explain([found.text], target=choice["class"], score=scale, **options)
        return Sight.of(again.html(), again.sentence, again.certificate)

    chances = found.probabilities or {found.label: found.probability}
    order = sorted(chances.items(), key=lambda chance: -chance[1])
    classes = [(name, name, chance) for name, chance in order]
    controls, chosen = _controls(classes, found.label, OF_QUESTIONS, found.certificate.tol)
    first = Sight.of(found.html(), found.sentence, found.certificate)
    return explorer(controls, chosen, first, explain, height=LOW)


def molecule_widget(found: MoleculeAttribution) -> AnyWidget:
    """The widget of an explained molecule; other methods only for networks on graphs, which can be asked by any."""
    from .molecules.model import GraphModel

    model = found.explained_by
    if model is None:
        raise _forgotten("molecules.load(...).explain([smiles])")
    single = len(model.outputs) == 1 or found.label not in model.outputs

    def explain(choice: Choice) -> Sight:
        name = choice["method"]
        options: dict[str, Any] = {"tol": _tolerance(choice), "target": None if single else choice["class"]}
        if name != USUAL:
            options["method"] = _method(name, choice)
        [again] = model.explain([found.mol], score=found.scale or None, **options)  # type: ignore[arg-type]
        again = replace(again, smiles=found.smiles)
        return Sight.of(again.page(), again.sentence, again.certificate)

    classes = [(name, name, math.nan) for name in (model.outputs if not single else (found.label,))]
    methods = OF_MOLECULES if isinstance(model, GraphModel) else (USUAL,)
    controls, chosen = _controls(classes, found.label, methods, found.certificate.tol)
    first = Sight.of(found.page(), found.sentence, found.certificate)
    return explorer(controls, chosen, first, explain, height=TALL)


def alignment_widget(found: Alignment) -> AnyWidget:
    """The widget of an explained translation: other tolerances."""
    asked = found.asked
    if asked is None:
        raise _forgotten("translation.load().explain(text)")

    def explain(choice: Choice) -> Sight:
        made = asked.explain(_tolerance(choice))
        return Sight.of(made.html(), made.sentence, made.certificate)

    controls, chosen = _controls([], "", (), asked.tol)
    return explorer(controls, chosen, Sight.of(found.html(), found.sentence, found.certificate), explain, height=LOW)


def method_note(method: Method) -> str:
    """What a reader must know where numbers are those of another method than integrated gradients, in a sentence or two."""
    broken = [promise.axiom for promise in method.promises if not promise.kept]
    said = f"These are the numbers of {method.name}, and not of integrated gradients."
    if broken:
        said += f" It does not promise {' or '.join(broken)}"
        said += "; they need not add up to the change of the score." if "completeness" in broken else "."
    return said


def _controls(
    classes: Sequence[tuple[str, str, float]],
    explained: str,
    methods: Iterable[str],
    tol: float,
    method: str = USUAL,
) -> tuple[list[Control], dict[str, str]]:
    """What there is to choose, and what a result is of that.

    Args:
        classes: value, label and probability of each, surest first.
        explained: the class that is.
        methods: names of methods.
        tol: the tolerance of the result.
        method: which one the result is by.
    """
    kept = [one for i, one in enumerate(classes) if i < SUREST or one[0] == explained]
    named = tuple((value, label if math.isnan(chance) else f"{label} ({percent(chance)})") for value, label, chance in kept)
    tolerances = sorted({*TOLERANCES, tol}, reverse=True)
    controls = [
        Control("class", "Class", named),
        Control("method", "Method", tuple((name, LABELS[name]) for name in methods)),
        Control("tolerance", "Tolerance", tuple((repr(value), percent(value)) for value in tolerances)),
    ]
    chosen = {"class": explained, "method": method, "tolerance": repr(tol)}
    controls = [one for one in controls if one.options]
    return controls, {one.name: chosen[one.name] for one in controls}


def _method(name: str, choice: Choice) -> Method:
    method = by_name(name)
    if any(field.name == "tol" for field in dataclasses.fields(method)):  # type: ignore[arg-type]
        method = replace(method, tol=_tolerance(choice))  # type: ignore[type-var]
    return method


def _tolerance(choice: Choice) -> float:
    return float(choice["tolerance"])


def _photo_sight(found: Explanation) -> Sight:
    return Sight.of(found.page(), found.sentence, found.result.certificate)


def _forgotten(call: str) -> InputError:
    return InputError(
        "got a result that does not hold the model that explained it, as those read back from a table, or made with method=; "
        f"expected integrated gradients, just explained. Explain it again: {call}.widget()."
    )
