"""A widget for notebooks in which a result is asked again: another class, another method, another tolerance.

:func:`explorer` knows nothing of models. An application gives it what there is to choose, and a function that explains again
and says what to show. A choice is computed in the kernel when it is made; what was computed is kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Literal

from ..certificate import Certificate, ExampleCertificate, Status
from ..errors import ConvergenceWarning, IntegrandError, MissingExtraError, OptionError, collected, quiet
from ..words import shortened
from .certificate_text import grade, sum_note, trust
from .notebook import TALL

if TYPE_CHECKING:
    from anywidget import AnyWidget

KEPT = 16
"""The answers that a widget keeps, so that going back to one takes no time: some 20 MB of photos' pages, 80 MB of eyes'."""

STYLE = """
.integrand-widget{display:grid;gap:.5rem;min-width:0;font-family:system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;
font-size:14px;line-height:1.45}
.integrand-widget .controls{display:flex;flex-wrap:wrap;gap:.5rem 1rem}
.integrand-widget label{display:grid;gap:.15rem;flex:1 1 9rem;max-width:20rem;min-width:0}
.integrand-widget select{font:inherit;color:inherit;background:light-dark(#fff,#1e2329);
border:1px solid light-dark(#8a929c,#6b7683);border-radius:8px;padding:.3rem .5rem;min-height:2.25rem;width:100%;min-width:0}
.integrand-widget option{color:light-dark(#1c2128,#e6e9ed);background:light-dark(#fff,#1e2329)}
.integrand-widget select:focus-visible{outline:3px solid light-dark(#175cd3,#6aa9ff);outline-offset:2px}
.integrand-widget p{margin:0;min-height:1.45em;overflow-wrap:anywhere}
.integrand-widget[data-state=good] p{color:light-dark(#166a3e,#5fd39a)}
.integrand-widget[data-state=mixed] p{color:light-dark(#7a5c00,#e3c765)}
.integrand-widget[data-state=bad] p{color:light-dark(#a8460b,#f2a45f)}
.integrand-widget iframe{display:block;width:100%;border:0;border-radius:8px}
.integrand-widget iframe[hidden]{display:none}
.integrand-widget[data-state=computing] iframe{opacity:.45}
""".strip()


@dataclass(frozen=True, slots=True)
class Control:
    """One thing to choose.

    Attributes:
        name: by which a choice names it.
        label: what people read.
        options: what there is, each a value and its label.
    """

    name: str
    label: str
    options: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Sight:
    """What the widget shows of one choice.

    Attributes:
        page: a self-contained HTML page; '' where there is none.
        says: the result in one sentence, which the frame is called.
        status: what stands above the page: how far the numbers can be trusted, or why there are none.
        state: which colour that has.
    """

    page: str
    says: str
    status: str
    state: Literal["good", "mixed", "bad"]

    @staticmethod
    def of(page: str, says: str, certificate: Certificate | ExampleCertificate) -> Sight:
        """The page of a result with its certificate in a few words."""
        examples = certificate.examples if isinstance(certificate, Certificate) else (certificate,)
        said = trust(certificate)
        # Of what was integrated the words before say whether the sum can be relied on.
        sums = [sum_note(one) for one in examples if len(examples) == 1 and one.status is Status.EXACT]
        return Sight(page, says, " ".join(filter(None, [f"{said[:1].upper()}{said[1:]}.", *sums])), grade(certificate))


Choice = Mapping[str, str]
"""A value for each control, by the control's name."""


def explorer(
    controls: Sequence[Control],
    chosen: Choice,
    first: Sight,
    explain: Callable[[Choice], Sight],
    *,
    height: int = TALL,
) -> AnyWidget:
    """A widget that shows one answer at first and computes others as they are chosen.

    Its trait ``choice`` has what is chosen, and can be set from Python too: ``widget.choice = {"method": "deeplift"}``. What
    ``explain`` raises on purpose is shown instead of a page.

    Args:
        controls: what there is to choose; what leaves no choice is not shown.
        chosen: what ``first`` shows.
        first: what is shown at first.
        explain: computes what to show of a choice.
        height: of the page, in pixels.

    Raises:
        MissingExtraError: anywidget is not installed.
    """
    return _explorer_class()(controls, dict(chosen), first, explain, height)  # type: ignore[no-any-return]


@cache
def _explorer_class() -> type[Any]:
    try:
        import traitlets
        from anywidget import AnyWidget
    except ImportError:
        raise MissingExtraError("anywidget", "notebook", "asking a result again in a notebook") from None

    class Explorer(AnyWidget):
        """The widget of :func:`explorer`."""

        _esm = resources.files(__package__).joinpath("widget.js").read_text(encoding="utf-8")
        _css = STYLE

        controls: traitlets.List[Any] = traitlets.List().tag(sync=True)
        choice = traitlets.Dict().tag(sync=True)
        answered = traitlets.Dict().tag(sync=True)
        page = traitlets.Unicode().tag(sync=True)
        title = traitlets.Unicode().tag(sync=True)
        status = traitlets.Unicode().tag(sync=True)
        state = traitlets.Unicode().tag(sync=True)
        height = traitlets.Int().tag(sync=True)

        def __init__(
            self,
            controls: Sequence[Control],
            chosen: dict[str, str],
            first: Sight,
            explain: Callable[[Choice], Sight],
            height: int,
        ) -> None:
            self._values = {one.name: tuple(value for value, _ in one.options) for one in controls}
            self._explain = explain
            self._kept: OrderedDict[tuple[str, ...], Sight] = OrderedDict({self._key(chosen): first})
            listed = [
                {"name": one.name, "label": one.label, "options": [list(option) for option in one.options]}
                for one in controls
                if len(one.options) > 1
            ]
            shows = {"page": first.page, "title": first.says, "status": first.status, "state": first.state}
            super().__init__(controls=listed, choice=chosen, answered=chosen, height=height, **shows)

        def __repr__(self) -> str:
            return shortened(self.title if self.page else self.status, 400)

        def _key(self, choice: Choice) -> tuple[str, ...]:
            return tuple(choice[name] for name in self._values)

        @traitlets.validate("choice")
        def _checked(self, proposal: Any) -> dict[str, str]:
            wanted = dict(self.choice) | dict(proposal["value"])
            for name, value in wanted.items():
                if name not in self._values:
                    raise OptionError(f"got a choice of {name!r}; expected one of {', '.join(self._values)}.")
                if value not in self._values[name]:
                    raise OptionError(f"got {name}={value!r}; expected one of {', '.join(self._values[name])}.")
            return wanted

        @traitlets.observe("choice")
        def _chosen(self, change: Any) -> None:
            wanted = dict(self.choice)
            if wanted == self.answered:
                return
            key = self._key(wanted)
            if key in self._kept:
                self._kept.move_to_end(key)
            else:
                self._kept[key] = self._computed(wanted)
                while len(self._kept) > KEPT:
                    self._kept.popitem(last=False)
            self._show(wanted, self._kept[key])

        def _computed(self, wanted: dict[str, str]) -> Sight:
            self.status, self.state = "Computing …", "computing"
            try:
                with collected() as warnings, quiet(ConvergenceWarning):  # the certificate says that
                    found = self._explain(wanted)
                said = " ".join([found.status, *(f"{one[:1].upper()}{one[1:]}" for one in warnings)])
                return Sight(found.page, found.says, said, found.state)
            except IntegrandError as error:
                return Sight("", "no page", str(error), "bad")
            except BaseException:
                self._show(wanted, Sight("", "no page", "It ended before there was an answer: choose again.", "bad"))
                raise

        def _show(self, wanted: dict[str, str], sight: Sight) -> None:
            with self.hold_sync():
                self.page, self.title = sight.page, sight.says
                self.status, self.state = sight.status, sight.state
                self.answered = wanted

    return Explorer
