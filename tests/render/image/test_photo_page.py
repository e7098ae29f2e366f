import base64
import dataclasses
import io
import re

import numpy as np
import pytest
import torch

import integrand as ig
from integrand import Attribution, Certificate, Status
from integrand.errors import InputError
from integrand.render import certificate_table, report
from integrand.render.certificate_text import cancelling, sum_note, verdict
from integrand.render.image.photo_page import ImagePage, PagePicture, PageRival, image_page, path_plot, preference
from integrand.render.image.views import Panel

from ..test_report import EVIL
from ..test_report import Page as Parser

SIZE = (3, 12, 12)


class Page(Parser):
    VOID = Parser.VOID | {"input", "line", "path", "polyline"}


@pytest.fixture
def values():
    return torch.randn(1, *SIZE, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def photo():
    return np.random.default_rng(0).integers(0, 256, (12, 12, 3)).astype(np.uint8)


@pytest.fixture
def full(attribution, values, photo):
    """A page with everything on it, in words that are easy to find."""
    return ImagePage(
        "tabby cat",
        photo,
        attribution(values),
        name="cat.jpg",
        network="GoogLeNet",
        score_name="the probability of tabby cat",
        top=[("tabby cat", 0.94), ("tiger cat", 0.05), ("sock", 0.00001)],
        others={"gradient × image": 2 * values[0].numpy()},
        rival=PageRival("tabby cat", "tiger cat", attribution(-values, score=3.0, baseline_score=1.0), "They are close."),
        pictures=[
            PagePicture("the path plot", "read it", photo, "path"),
            PagePicture("another picture", "", photo),
        ],
        notes=["It was turned according to its EXIF orientation."],
        preprocessing="central square to 224 × 224",
        meta={"seed": "7"},
        command="integrand image cat.jpg",
    )


def test_sections_come_in_order(full):
    text = image_page(full)
    page = Page(text)
    assert not page.open
    order = (
        "tabby cat (94%): half of what speaks for it lies in",
        "Numbers good to 0.4%",
        "The error estimate is within the tolerance",
        "cat.jpg, as GoogLeNet got it",
        "What the network said",
        "EXIF",
        "Why tabby cat and not tiger cat",
        "They are close.",
        "Regions",
        "Where on the path it comes from",
        "the path plot",
        "another picture",
        "How to read it",
        "How it was made",
        "central square to 224 × 224",
        "integrand image cat.jpg",
    )
    at = 0
    for words in order:
        assert words in page.text[at:], words
        at = page.text.index(words, at)


def test_numbers_are_the_certificates(full):
    page = Page(image_page(full))
    assert "94.0%" in page.text
    assert "< 0.1%" in page.text
    # The regions are rows of 12 x 12 pixels, strongest first; they add up to what the attributions add up to.
    sums = [float(value) for value in re.findall(r'<td data-value="([^"]+)">[^<]*\(error not known\)', image_page(full))]
    assert sums == sorted(sums, key=abs, reverse=True)
    assert sum(sums) == pytest.approx(float(full.main.values.double().sum()))
    widths = re.findall(r'<i style="width:([\d.]+)%"', image_page(full))
    assert widths == ["94.00", "5.00", "0.00"]


def test_maps_can_be_chosen_and_linked_to(full):
    text = image_page(full)
    names = re.findall(r'name="map" value="(\d)"[^>]*><span>([^<]*)</span>', text)
    assert names == [("0", "integrated gradients"), ("1", "gradient × image"), ("2", "tabby cat against tiger cat")]
    assert 'href="#map=2&amp;' in text


def test_the_least_page(attribution, values, photo):
    page = Page(image_page(ImagePage("cat", photo, attribution(values))))
    assert not page.open
    assert "0.94" in page.text
    for absent in ("What the network said", "Why cat", "Where on the path", "Further pictures"):
        assert absent not in page.text


def test_every_text_is_escaped(attribution, values, photo):
    result = attribution(values, target=EVIL, rule=EVIL, precision=EVIL, note=EVIL)
    result = Attribution(values, result.certificate, True, {"method": EVIL, EVIL: EVIL})
    page = ImagePage(
        EVIL,
        photo,
        result,
        name="<img src=x onerror=alert(1)>.jpg",
        network=EVIL,
        score_name=EVIL,
        title=EVIL,
        top=[(EVIL, 0.5)],
        others={EVIL + "2": values[0].numpy()},
        rival=PageRival(EVIL, EVIL, result, EVIL),
        pictures=[PagePicture(EVIL, EVIL, photo, place) for place in ("path", "more")],
        says=EVIL,
        rule=EVIL,
        notice=EVIL,
        notes=[EVIL],
        preprocessing=EVIL,
        meta={EVIL: EVIL},
        command=EVIL,
    )
    text = image_page(page)
    parsed = Page(text)
    assert not parsed.open
    assert EVIL not in text
    assert "<img src=x" not in text
    scripts = [attrs for tag, attrs in parsed.tags if tag == "script"]
    assert scripts == [{"type": "application/json", "data-part": "data"}, {}, {}]
    assert not any(name.startswith("on") for _, attrs in parsed.tags for name in attrs)


def test_nothing_is_loaded(full):
    page = Page(image_page(full))
    assert all(attrs["src"].startswith("data:") for _, attrs in page.tags if "src" in attrs)
    assert all(attrs["href"].startswith("#") for _, attrs in page.tags if "href" in attrs)


def test_pictures_of_pixels_and_of_bytes(full, photo):
    image = pytest.importorskip("PIL.Image")
    buffer = io.BytesIO()
    image.fromarray(photo).save(buffer, "png")
    text = image_page(
        dataclasses.replace(full, pictures=[PagePicture("a", "", buffer.getvalue()), PagePicture("b", "", photo)])
    )
    for name in "ab":
        data = re.search(rf'alt="{name}" src="data:image/png;base64,([^"]+)"', text)[1]
        with image.open(io.BytesIO(base64.b64decode(data))) as shown:
            assert (np.asarray(shown) == photo).all()


def test_several_photos_are_refused(attribution, photo):
    with pytest.raises(ig.errors.OptionError, match="2 examples"):
        image_page(ImagePage("cat", photo, attribution(torch.ones(2, *SIZE))))
    with pytest.raises(InputError, match="expected those of one photo"):
        image_page(ImagePage("cat", photo, attribution(torch.ones(1, 5))))


def test_a_name_stands_for_one_map(attribution, values, photo):
    with pytest.raises(InputError, match="the name of the main attribution"):
        image_page(ImagePage("cat", photo, attribution(values), others={"integrated gradients": values[0].numpy()}))


@pytest.mark.parametrize(
    ("label", "changes", "lead"),
    [
        ("tabby cat", {}, "tabby cat (94%): "),
        ("tiger cat", {}, "tiger cat (5%, the network's second answer): "),
        ("sock", {}, "sock (< 0.1%): "),
        ("sock", {"rank": 3}, "sock (< 0.1%, the network's third answer): "),
        ("sock", {"rank": 42}, "the network's no. 42 answer): "),
        ("sock", {"rank": 3, "top": ()}, "sock (the network's third answer): "),
        ("sock", {"says": "Why?"}, "Why?"),
    ],
)
def test_only_the_first_answer_is_said_to_be_the_networks(full, label, changes, lead):
    text = Page(image_page(dataclasses.replace(full, label=label, **changes))).text
    assert lead in text


@pytest.mark.parametrize(
    ("start", "end", "words"),
    [
        (-1.0, 3.0, ("tabby cat is ahead of tiger cat by 3.", "was behind by 1,", "speaks for tabby cat by 4.")),
        (0.0, 3.0, ("it was level, so that all of the lead comes from the photo",)),
        (1.0, 3.0, ("It was ahead by 1 at black already", "a further 2.")),
        (
            3.0,
            1.0,
            ("ahead of tiger cat by 1. But that is not the photo's doing", "ahead by 3. ", "speaks for tiger cat, by 2,"),
        ),
        (1.0, 1.0, ("on balance the photo speaks for neither",)),
        (1.0, -1.0, ("It is not tabby cat: ", "tiger cat ahead by 1.", "was behind by 1", "speaks for tiger cat by 2.")),
        (-3.0, -1.0, ("tiger cat ahead by 1. But that is not the photo's doing", "speaks for tabby cat, by 2,")),
        (1.0, 0.0, ("rates tabby cat and tiger cat alike",)),
    ],
)
def test_the_rival_is_told_from_the_side_of_the_explained_class(full, attribution, values, start, end, words):
    rival = PageRival("tabby cat", "tiger cat", attribution(values, score=end, baseline_score=start), baseline="black")
    for one in words:
        assert one in preference(rival), preference(rival)
    assert preference(rival) in Page(image_page(dataclasses.replace(full, rival=rival))).text


def test_what_is_explained_stands_out_wherever_it_ranks(full):
    text = image_page(dataclasses.replace(full, label="tiger cat"))
    assert re.findall(r'class="asked" aria-current="true"><th scope="row" title="([^"]*)', text) == ["tiger cat"]


def test_steps_of_a_scale_stay_in_order_and_the_stated_one_is_marked(full):
    top = [(f"grade {k}: words", chance) for k, chance in enumerate((0.464, 0.0, 0.0, 0.3, 0.236))]
    grades = dataclasses.replace(
        full, label="moderate or worse", top=top, ordered=True, stated="grade 2: words", rule="The mean, rounded.", notice="No!"
    )
    text = image_page(grades)
    shown = re.findall(
        r'<th scope="row" title="([^"]*)">(?:<span[^>]*>(.)[^<]*</span>)?([^<]*)</th><td><i[^>]*></i></td><td>([^<]*)', text
    )
    assert [one[2:] for one in shown] == [
        ("grade 0", "46.4%"),
        ("grade 1", "0.0%"),
        ("grade 2", "0.0%"),
        ("grade 3", "30.0%"),
        ("grade 4", "23.6%"),
    ]
    assert [mark for _, mark, _, _ in shown] == ["", "", "▸", "", ""]
    page = Page(text).text
    assert "The mean, rounded." in page
    assert page.index("No!") < page.index("moderate or worse: ")  # before anything is said


def test_panels_bring_their_scale(full, photo):
    panel = Panel("x", "y", photo, 0.25, colours=("#ff0000", "#00ff00"), lines=("face +0.3",))
    page = Page(image_page(dataclasses.replace(full, pictures=[PagePicture("a panel", "", panel)])))
    for words in ("a panel", "≤ −0.25", "face +0.3"):
        assert words in page.text


def test_cancelling_is_explained_where_it_is_large(certificate, values):
    small, large = certificate(magnitude=18.0), certificate(magnitude=372.0, residual=-0.0465, error=0.01)
    assert cancelling(small) == ""
    told = Parser(cancelling(large)).text
    for words in ("changes by 0.93", "372, 400 times as much", "1% of 372", "-0.046", "5% of the change"):
        assert words in told, words
    assert "Why the attributions" in report(Attribution(values, Certificate((large,))))
    assert "Why the attributions" not in report(Attribution(values, Certificate((small,))))
    # Without a change there is nothing to divide by.
    told = Parser(cancelling(certificate(score=0.5, baseline_score=0.5, magnitude=3.0))).text
    assert "changes by 0, " in told
    assert "times as much" not in told


def test_sums_that_miss_much_are_doubted(certificate):
    assert sum_note(certificate(residual=0.09)) == ""
    note = sum_note(certificate(residual=-1.3113))  # 1.41 times 0.93
    assert "misses -1.3, which is 141% of the change" in note
    assert "0.4% of the magnitudes" in note
    assert "0.4%" not in sum_note(certificate(residual=-0.93, status=Status.BUDGET))
    # A score that does not change leaves rounding, and a method that does not add up cannot be asked for a tolerance.
    assert sum_note(certificate(score=0.5, baseline_score=0.5, residual=1e-9)) == ""
    silent = certificate(score=0.0037089490797, baseline_score=0.0037089495454, residual=4.7e-10, magnitude=0.0)
    assert sum_note(silent) == ""  # the input is the baseline: one float32 apart
    assert "tolerance" not in sum_note(certificate(residual=-0.93, status=Status.EXACT))
    assert sum_note(certificate(residual=float("nan"))) == ""


def test_one_box_says_both_that_it_converged_and_that_the_sum_is_off(certificate, values):
    fine, off = certificate(), certificate(residual=-1.3113)
    assert 'class="verdict good"' in verdict(fine)
    assert 'class="verdict mixed"' in verdict(off)
    assert 'class="verdict bad"' in verdict(certificate(residual=-1.3113, status=Status.BUDGET))
    assert "141% of the change" in verdict(off)
    for text in (report(Attribution(values, Certificate((off,)))), certificate_table(Certificate((off, fine)))):
        assert text.count("The attributions are accurate one by one") == 1
        assert "within the tolerance that was asked for" not in text
    page = image_page(ImagePage("cat", np.zeros((12, 12, 3)), Attribution(values, Certificate((off,)), meta={"method": "m"})))
    assert page.count('class="verdict') == 1


def test_path_is_drawn_from_what_the_integration_saw():
    # F = t * 2 up to t = 1/2, then flat: the mass is 2 and then 0, half of it before t = 1/4.
    result = ig.integrated_gradients(lambda x: 1 - torch.relu(1 - x).sum(1), torch.tensor([[2.0]]))
    drawn = path_plot(result)
    assert "Half of the attribution mass lies before t = 0.25" in drawn
    points = [tuple(map(float, pair.split(","))) for pair in re.search(r'points="([^"]+)"', drawn)[1].split()]
    wanted = [(x, 150 * (1 - min(2 * x / 640, 1))) for x, _ in points]
    np.testing.assert_allclose(points, wanted, atol=0.11)
    assert path_plot(dataclasses.replace(result, profile=None)) == ""
    # A text near the right edge goes to the left of its line, clear of the axis.
    late = path_plot(ig.integrated_gradients(lambda x: (x**9).sum(1), torch.tensor([[1.0]])))
    assert re.findall(r'text-anchor="end">([^<]*)<', late) == ["50% before here", "90% before here", "photo"]
    assert re.findall(r'text-anchor="end">([^<]*)<', drawn) == ["photo"]
