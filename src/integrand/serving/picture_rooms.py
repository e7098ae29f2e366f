"""The rooms for pictures: any photo and a classifier, and eyes with the retinopathy grader."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, ClassVar

from ..apps import images, retina
from ..apps.images.model import Network
from ..apps.images.result import BASELINES, photo_case
from ..apps.photos import Photo, read_data
from ..apps.retina.result import SHORT
from ..words import percent, shown
from .room import (
    FIRST_ANSWERS,
    Asked,
    FormField,
    ModelShelf,
    Room,
    RoomJob,
    RoomResult,
    bytes_of,
    code_of,
    compared,
    diagnosed,
    imports_of,
    png_of,
    tolerance_field,
)

if TYPE_CHECKING:
    from ..analysis.inquiry import Inquiry
    from ..apps.images import Explanation

PHOTO = FormField("photo", "Photo", "photo", needed=True)


def stem_of(name: str) -> str:
    """A file's name without its ending, made of letters, digits and dashes, for names of further files.

    >>> stem_of("../My cat (1).JPG"), stem_of("<b>")
    ('My-cat-1', 'b')
    """
    kept = "".join(sign if sign.isalnum() else "-" for sign in PurePath(name.replace("\\", "/")).stem)
    return "-".join(filter(None, kept.split("-")))[:60] or "photo"


class PictureRoom(Room):
    """What rooms for pictures share: the photo, its examples, and how results of both kinds are shown."""

    quick: ClassVar[bool] = False
    shown: Mapping[str, Callable[[], bytes]]

    def example_photo(self, key: str) -> tuple[bytes, str]:
        """The bytes and the name of a photo among the examples."""
        if key not in self.shown:
            return super().example_photo(key)
        return self.shown[key](), f"{key}.jpg"

    def _warm(self) -> None:
        for photo in self.shown.values():
            photo()
        with suppress(ImportError):
            import_module("skimage.segmentation.slic_superpixels")  # takes longer to import than a small photo to explain

    @staticmethod
    def _read(asked: Asked) -> Photo:
        assert asked.photo is not None
        return read_data(*asked.photo)

    @staticmethod
    def _outcome(found: Explanation, code: str) -> RoomResult:
        found = replace(found, photo=replace(found.photo, pixels=found.shown))
        others = () if found.rival is None else (found.rival.result.values,)
        return RoomResult(
            found.title,
            found.sentence,
            found.page(),
            found.result.certificate,
            png_of(found.figure),
            found.numbers,
            code,
            stem_of(found.photo.name),
            bytes_of((found.x, found.result.values, found.gradient.values, *others)) + 2 * found.shown.nbytes,
        )

    @staticmethod
    def _compare(inquiry: Inquiry, job: RoomJob, tol: float, code: str, stem: str) -> None:
        found = inquiry.compare_methods(tol=tol, progress=job.tell)
        again = code_of(code, f"print(asked.compare_methods(tol={tol!r}))")
        job.show(compared(found, again, stem, **inquiry.view, labels=inquiry.label))

    @staticmethod
    def _diagnose(inquiry: Inquiry, job: RoomJob, tol: float, code: str, stem: str) -> None:
        found = inquiry.diagnose(tol=tol, progress=job.tell)
        view = inquiry.view | {"label": inquiry.label, "pixels": inquiry.ends.get("pixels")}
        job.show(diagnosed(found, code_of(code, f"print(asked.diagnose(tol={tol!r}))"), stem, **view))


class PhotoRoom(PictureRoom):
    """Any photo, and networks that say what is on it."""

    name = "photo"
    title = "Photo"
    lead = "Drop a photo. You see what a network takes it for, and which parts of it made it say so."

    def __init__(
        self,
        networks: Mapping[str, Callable[[], Network]],
        *,
        code: Mapping[str, str],
        shown: Mapping[str, Callable[[], bytes]],
    ) -> None:
        self.networks = ModelShelf(networks)
        self.code = code
        self.shown = shown
        names = self.networks.names
        self.fields = (
            PHOTO,
            FormField("target", "Explain", "answer", help="What the network says, or another class by its name or number."),
            FormField("rival", "Rather than", "answer", help="Also explain why it is not this class. Takes twice as long."),
            FormField("model", "Network", "choice", names[0], names),
            FormField("baseline", "Compared with", "choice", "black", BASELINES, help="The picture that means: nothing there."),
            tolerance_field("1%"),
        )
        self.examples = tuple({"title": name, "photo": name} for name in shown)

    def warm(self) -> None:
        """Load the networks, the examples and what pages are drawn with."""
        self.networks.load()
        self._warm()

    def explain(self, asked: Asked, job: RoomJob) -> None:
        """Say what the network takes the photo for, and explain it."""
        network, photo = self.networks[asked["model"]], self._read(asked)
        given: dict[str, Any] = {"target": asked.get("target"), "baseline": asked["baseline"]}
        case = photo_case(photo, network, **given)
        surest, other = case.answers[0], case.other(asked.get("rival") or False)
        listed = [(one.label, one.probability) for one in case.answers[:FIRST_ANSWERS]]
        job.answers(f"{surest.label} ({percent(surest.probability)})", listed, chosen=case.answer.label)

        def explained(tol: float) -> RoomResult:
            exact = tol == asked.tol
            found = case.explained(other if exact else None, tol=tol, progress=job.tell)
            options = {**given, "rival": asked.get("rival") if exact else None, "tol": tol}
            told = "".join(f", {name}={value!r}" for name, value in options.items() if value is not None)
            code = (f"result = images.explain({shown(photo.name)!r}, network{told})", "print(result)")
            return self._outcome(found, code_of(*self._setup(asked), *code))

        job.refined(explained, asked.tol)

    def methods(self, asked: Asked, job: RoomJob) -> None:
        """Set methods side by side on the photo."""
        inquiry, code, stem = self._inquiry(asked)
        self._compare(inquiry, job, max(asked.tol, 0.01), code, stem)

    def baselines(self, asked: Asked, job: RoomJob) -> None:
        """Set baselines side by side on the photo."""
        inquiry, code, stem = self._inquiry(asked)
        self._diagnose(inquiry, job, max(asked.tol, 0.05), code, stem)

    def _setup(self, asked: Asked) -> tuple[str, ...]:
        code = self.code[asked["model"]]
        return (*imports_of(code, "from integrand.apps import images, networks"), f"network = {code}")

    def _inquiry(self, asked: Asked) -> tuple[Inquiry, str, str]:
        network, photo = self.networks[asked["model"]], self._read(asked)
        given = {"target": asked.get("target"), "baseline": asked["baseline"]}
        told = "".join(f", {name}={value!r}" for name, value in given.items() if value is not None)
        code = "\n".join((*self._setup(asked), f"asked = images.inquiry({shown(photo.name)!r}, network{told})"))
        return images.inquiry(photo, network, **given), code, stem_of(photo.name)


class EyeRoom(PictureRoom):
    """Photos of retinas, and the grader for diabetic retinopathy."""

    name = "eye"
    title = "Eye"
    lead = "Drop a photo of a retina. You see its grade of diabetic retinopathy, and what in the picture speaks for it."
    notice = retina.NOTICE

    def __init__(self, *, shown: Mapping[str, Callable[[], bytes]], device: str | None = None) -> None:
        self.graders = ModelShelf({"grader": partial(retina.load, device)})
        self.shown = shown
        targets = ("", "any", "referable", "severe or worse", "proliferative")
        self.fields = (
            PHOTO,
            FormField("target", "Explain", "choice", "", targets, help="Empty: the grade that the network gives."),
            FormField("baseline", "Compared with", "choice", "blurred", retina.BASELINES),
            tolerance_field("5%"),
        )
        self.examples = tuple({"title": name, "photo": name} for name in shown)

    def warm(self) -> None:
        """Load the grader, the examples and what pages are drawn with."""
        self.graders.load()
        self._warm()

    def explain(self, asked: Asked, job: RoomJob) -> None:
        """Grade the eye, and explain the grade."""
        grader = self.graders["grader"]
        eye = grader.see(self._read(asked))
        grade = grader.grade(eye)
        listed = [(f"{k}: {SHORT[k]}", chance) for k, chance in enumerate(grade.probabilities)]
        job.answers(grade.sentence, listed, chosen=listed[grade.grade][0])
        given: dict[str, Any] = {"target": asked.get("target"), "baseline": asked["baseline"]}

        def explained(tol: float) -> RoomResult:
            found = grader.examine(eye, tol=tol, progress=job.tell, **given)
            told = "".join(f", {name}={value!r}" for name, value in {**given, "tol": tol}.items() if value is not None)
            code = (f"result = grader.examine({shown(eye.photo.name)!r}{told})", "print(result)")
            return self._outcome(found, code_of(*_GRADER, *code))

        job.refined(explained, asked.tol)

    def methods(self, asked: Asked, job: RoomJob) -> None:
        """Set methods side by side on the eye."""
        inquiry, code, stem = self._inquiry(asked)
        self._compare(inquiry, job, max(asked.tol, 0.05), code, stem)

    def baselines(self, asked: Asked, job: RoomJob) -> None:
        """Set baselines side by side on the eye."""
        inquiry, code, stem = self._inquiry(asked)
        self._diagnose(inquiry, job, max(asked.tol, 0.05), code, stem)

    def _inquiry(self, asked: Asked) -> tuple[Inquiry, str, str]:
        photo = self._read(asked)
        given: dict[str, Any] = {"target": asked.get("target"), "baseline": asked["baseline"]}
        told = "".join(f", {name}={value!r}" for name, value in given.items() if value is not None)
        code = "\n".join((*_GRADER, f"asked = grader.inquiry({shown(photo.name)!r}{told})"))
        inquiry: Inquiry = self.graders["grader"].inquiry(photo, **given)
        return inquiry, code, stem_of(photo.name)


_GRADER = ("from integrand.apps import retina", "", "grader = retina.load()")
