"""The widget that asks a result again: its Python side, and its script in a real browser, with a model in place of a kernel."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from integrand.errors import (
    BaselineWarning,
    ConvergenceWarning,
    MissingExtraError,
    OperationError,
    OptionError,
    warn,
)
from integrand.render import widget as module
from integrand.render.html import document
from integrand.render.widget import KEPT, Choice, Control, Sight, explorer
from tests.browser import PHONE, serious

from .conftest import certified

CONTROLS = (
    Control("class", "Class", (("1", "tabby (40%)"), ("2", "tiger <cat> (30%)"))),
    Control("method", "Method", (("ig", "integrated gradients"), ("lrp", "LRP"))),
    Control("tolerance", "Tolerance", (("0.01", "1%"),)),
)
FIRST = {"class": "1", "method": "ig", "tolerance": "0.01"}


def sight(name: str) -> Sight:
    return Sight(document(name, "<p>page</p>"), f"it is {name}", f"{name} is good to 1%.", "good")


class Asked:
    """Explains, and notes what it was asked."""

    def __init__(self, run: Callable[[Choice], Sight] = lambda choice: sight("-".join(choice.values()))) -> None:
        self.calls: list[dict[str, str]] = []
        self.run = run

    def __call__(self, choice: Choice) -> Sight:
        self.calls.append(dict(choice))
        return self.run(choice)


def made(asked: Callable[[Choice], Sight], controls: Any = CONTROLS, chosen: Any = FIRST) -> Any:
    pytest.importorskip("anywidget", reason="needs anywidget: make test installs it")
    return explorer(controls, chosen, sight("first"), asked)


def sent(widget: Any) -> list[dict[str, Any]]:
    """The states that the widget sends from now on, one after the other."""
    found: list[dict[str, Any]] = []
    widget.send_state = lambda key=None: found.append(widget.get_state(key))
    return found


# ---- in the kernel ---------------------------------------------------------------------------------------------------------


def test_it_shows_what_it_was_given_without_asking() -> None:
    asked = Asked()
    widget = made(asked)
    assert asked.calls == []
    assert (widget.page, widget.title, widget.status) == (sight("first").page, "it is first", "first is good to 1%.")
    assert [one["name"] for one in widget.controls] == ["class", "method"]  # a tolerance alone is no choice
    assert repr(widget) == "it is first"


def test_a_choice_is_computed_once() -> None:
    asked = Asked()
    widget = made(asked)
    widget.choice = {"class": "2"}  # the rest stays
    assert widget.choice == FIRST | {"class": "2"} == widget.answered
    assert widget.title == "it is 2-ig-0.01"
    widget.choice = FIRST
    assert widget.title == "it is first"
    widget.choice = {"class": "2"}
    assert widget.title == "it is 2-ig-0.01"
    assert asked.calls == [FIRST | {"class": "2"}]


def test_the_front_end_hears_that_it_computes_and_then_all_of_the_answer_at_once() -> None:
    widget = made(Asked())
    states = sent(widget)
    widget.set_state({"choice": FIRST | {"class": "2"}})
    told = [state for state in states if "state" in state]
    assert told[0]["state"] == "computing"
    assert told[-1]["state"] == "good"
    whole = next(state for state in states if "answered" in state)
    assert {"page", "title", "status", "answered"} <= set(whole)


def test_it_keeps_a_few_answers_and_forgets_the_oldest() -> None:
    many = tuple((str(i), f"class {i}") for i in range(KEPT + 2))
    asked = Asked()
    widget = made(asked, [Control("class", "Class", many)], {"class": "0"})
    for i in range(1, KEPT + 2):
        widget.choice = {"class": str(i)}
    assert len(asked.calls) == KEPT + 1
    widget.choice = {"class": str(KEPT)}
    assert len(asked.calls) == KEPT + 1
    widget.choice = {"class": "1"}
    assert len(asked.calls) == KEPT + 2


def test_what_a_method_has_no_rule_for_is_said_in_place_of_a_page() -> None:
    def run(choice: Choice) -> Sight:
        raise OperationError("lrp has no rule for the operation 'cos'. Use integrated gradients.")

    asked = Asked(run)
    widget = made(asked)
    widget.choice = {"method": "lrp"}
    assert (widget.page, widget.state) == ("", "bad")
    assert widget.status == "lrp has no rule for the operation 'cos'. Use integrated gradients." == repr(widget)
    widget.choice = FIRST
    widget.choice = {"method": "lrp"}
    assert len(asked.calls) == 1  # it would say the same again


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("out of luck")])
def test_what_ends_it_otherwise_is_raised_and_can_be_tried_again(error: BaseException) -> None:
    failing = [error]

    def run(choice: Choice) -> Sight:
        if failing:
            raise failing.pop()
        return sight("second")

    widget = made(Asked(run))
    with pytest.raises(type(error)):
        widget.choice = {"class": "2"}
    assert (widget.state, widget.page) == ("bad", "")
    assert "choose again" in widget.status
    widget.choice = FIRST
    widget.choice = {"class": "2"}
    assert widget.title == "it is second"


def test_warnings_are_part_of_the_status() -> None:
    def run(choice: Choice) -> Sight:
        warn("the baseline has the class already", BaselineWarning)
        warn("it did not converge, as the certificate says", ConvergenceWarning)
        return sight("second")

    widget = made(Asked(run))
    widget.choice = {"class": "2"}
    assert widget.status == "second is good to 1%. The baseline has the class already"


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ({"class": "3"}, r"got class='3'; expected one of 1, 2\."),
        ({"colour": "red"}, r"got a choice of 'colour'; expected one of class, method, tolerance\."),
    ],
)
def test_a_choice_that_there_is_not(choice: dict[str, str], said: str) -> None:
    widget = made(Asked())
    with pytest.raises(OptionError, match=said):
        widget.choice = choice
    assert widget.choice == FIRST


def test_without_anywidget_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "anywidget", None)
    module._explorer_class.cache_clear()
    with pytest.raises(MissingExtraError, match=r"needs the package 'anywidget'.*pip install 'integrand\[notebook\]'"):
        explorer(CONTROLS, FIRST, sight("first"), Asked())
    module._explorer_class.cache_clear()


def test_the_status_is_the_certificate_in_words() -> None:
    found = Sight.of("page", "says", certified(error=0.005, tol=0.01))
    assert (found.status, found.state) == ("Numbers good to 0.5%.", "good")


# ---- in the browser --------------------------------------------------------------------------------------------------------

HARNESS = """<!doctype html><html lang="en"><meta charset="utf-8"><title>notebook</title>
<style>:root{color-scheme:light dark}body{background:light-dark(#fff,#111);color:light-dark(#111,#eee)}%s</style>
<main id="cell"></main>
<script type="application/json" id="state">%s</script>
<script type="text/plain" id="esm">%s</script>
<script type="module">
const state = JSON.parse(document.getElementById("state").textContent);
const handlers = {};
window.asked = [];
const model = {
  get: (name) => state[name],
  set: (name, value) => { state[name] = value; },
  save_changes: () => window.asked.push({ ...state.choice }),
  on: (event, run) => (handlers[event] ??= []).push(run),
  off: (event, run) => { handlers[event] = handlers[event].filter((one) => one !== run); },
};
window.listeners = () => Object.values(handlers).flat().length;
window.kernel = (changes) => {
  Object.assign(state, changes);
  for (const name of Object.keys(changes)) for (const run of handlers[`change:${name}`] ?? []) run();
};
const source = new Blob([document.getElementById("esm").textContent], { type: "text/javascript" });
const widget = (await import(URL.createObjectURL(source))).default;
window.leave = widget.render({ model, el: document.getElementById("cell") });
</script></html>"""

SENT = ("controls", "choice", "answered", "page", "title", "status", "state", "height")


def notebook(widget: Any) -> str:
    state = json.dumps({name: getattr(widget, name) for name in SENT}).replace("</", "<\\/")
    return HARNESS % (widget._css, state, widget._esm)


def answer(name: str, choice: dict[str, str]) -> dict[str, Any]:
    one = sight(name)
    return {"page": one.page, "title": one.says, "status": one.status, "state": one.state, "answered": choice}


def test_controls_are_labelled_and_work_by_keyboard(browser: Any) -> None:
    with browser.open(notebook(made(Asked()))) as page:
        chooser = page.get_by_label("Class")
        assert chooser.locator("option").all_text_contents() == ["tabby (40%)", "tiger <cat> (30%)"]
        assert page.get_by_label("Tolerance").count() == 0
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.dataset.name") == "class"
        page.keyboard.press("ArrowDown")
        wanted = FIRST | {"class": "2"}
        assert page.evaluate("asked") == [{"class": "2", "method": "ig"}]
        assert page.get_by_role("status").text_content() == "Computing …"
        assert page.locator("iframe").get_attribute("aria-busy") == "true"
        page.evaluate("kernel", answer("second", wanted))
        assert page.get_by_role("status").text_content() == "second is good to 1%."
        assert page.frame_locator("iframe").locator("h1").text_content() == "second"
        assert page.locator("iframe").get_attribute("title") == "it is second"
        assert page.evaluate("document.activeElement.dataset.name") == "class"  # where the reader was


def test_only_the_last_of_several_quick_choices_is_asked(browser: Any) -> None:
    with browser.open(notebook(made(Asked()))) as page:
        page.get_by_label("Class").select_option("2")
        page.get_by_label("Method").select_option("lrp")
        page.get_by_label("Class").select_option("1")
        assert page.evaluate("asked") == [{"class": "2", "method": "ig"}]
        page.evaluate("kernel", answer("second", FIRST | {"class": "2"}))
        assert page.evaluate("asked.slice(1)") == [{"class": "1", "method": "lrp"}]
        assert page.get_by_role("status").text_content() == "Computing …"
        page.evaluate("kernel", answer("third", FIRST | {"method": "lrp"}))
        assert page.frame_locator("iframe").locator("h1").text_content() == "third"


def test_a_message_takes_the_place_of_the_page(browser: Any) -> None:
    with browser.open(notebook(made(Asked()))) as page:
        page.get_by_label("Method").select_option("lrp")
        said = {"page": "", "title": "no page", "status": "lrp has no rule for <b>", "state": "bad"}
        page.evaluate("kernel", {**said, "answered": FIRST | {"method": "lrp"}})
        assert page.get_by_role("status").text_content() == "lrp has no rule for <b>"
        assert not page.locator("iframe").is_visible()


def test_what_python_chooses_shows_in_the_controls(browser: Any) -> None:
    with browser.open(notebook(made(Asked()))) as page:
        wanted = FIRST | {"class": "2"}
        page.evaluate("kernel", {"choice": wanted, **answer("second", wanted)})
        assert page.get_by_label("Class").input_value() == "2"
        assert page.evaluate("asked") == []
        page.evaluate("leave()")
        assert page.evaluate("listeners()") == 0


def test_the_page_is_shut_in(browser: Any) -> None:
    spy = """<!doctype html><p id=p>no</p><script>
    try { parent.document.title = "caught"; p.textContent = "reached"; } catch (error) { p.textContent = error.name; }
    </script>"""
    widget = made(Asked())
    widget.page = spy
    with browser.open(notebook(widget)) as page:
        assert page.locator("iframe").get_attribute("sandbox") == "allow-scripts allow-downloads"
        assert page.frame_locator("iframe").locator("#p").text_content() == "SecurityError"
        assert page.title() == "notebook"


@pytest.mark.parametrize("dark", [False, True])
def test_it_can_be_read_by_everybody_on_both_grounds(dark: bool, browser: Any) -> None:
    for state in ("good", "mixed", "bad"):
        widget = made(Asked())
        widget.state = state
        with browser.open(notebook(widget), dark=dark, size=PHONE) as page:
            assert page.locator(".integrand-widget").evaluate("el => el.style.colorScheme") == ("dark" if dark else "light")
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            assert page.locator("iframe").get_attribute("title")
            page.evaluate("document.querySelector('iframe').remove()")  # which axe cannot look into
            assert serious(page) == []


def test_its_script_loads_nothing() -> None:
    text = module.resources.files("integrand.render").joinpath("widget.js").read_text(encoding="utf-8")
    assert "http" not in text
    assert "import" not in text
