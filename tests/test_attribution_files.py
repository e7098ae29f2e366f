"""Result files: all that is saved comes back bit for bit, and what was not saved by us is refused before it is used."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

import integrand as ig
from benchmarks.fuzz_results import KINDS, MARK, Opened, fuzzed, results
from integrand.attribution_files import LARGEST_HEADER, example_of
from integrand.certificate import AXIOMS
from integrand.errors import FileError, InputError
from integrand.render import report
from integrand.schema import LONGEST_TEXT, MOST_PARTS, fitted, parsed, stored
from integrand.trees import flatten


def bits(values: object) -> list[bytes]:
    return [leaf.contiguous().view(torch.uint8).numpy().tobytes() for leaf in flatten(values)[1] if leaf.ndim] + [
        struct.pack("<d", float(leaf)) for leaf in flatten(values)[1] if not leaf.ndim
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_result_comes_back_bit_for_bit(kind: str, tmp_path: Path) -> None:
    result = results()[kind]
    loaded = ig.Attribution.load(result.save(tmp_path / "r.safetensors"))
    assert bits(loaded.values) == bits(result.values)
    assert repr(loaded) == repr(result)
    assert repr(loaded.certificate.examples) == repr(result.certificate.examples)  # NaN is not equal to itself
    assert loaded.certificate.promises == result.certificate.promises
    assert (loaded.batched, loaded.meta, list(loaded.extras)) == (result.batched, result.meta, list(result.extras))
    assert all(bits(loaded.extras[name]) == bits(extra) for name, extra in result.extras.items())
    if result.profile is None:
        assert loaded.profile is None
    else:
        for part in dataclasses.fields(result.profile):
            first, second = (getattr(one.profile, part.name) for one in (result, loaded))
            assert first.dtype == second.dtype
            np.testing.assert_array_equal(first, second)
    assert (result.draws is None) == (loaded.draws is None)
    if result.draws is not None and loaded.draws is not None:
        assert bits((loaded.draws.draws, loaded.draws.scale)) == bits((result.draws.draws, result.draws.scale))


def test_files_of_older_versions_may_lack_what_has_a_default(tmp_path: Path) -> None:
    path = dataclasses.replace(results()["batch"], draws=None).save(tmp_path / "r.safetensors")
    file = Opened.of(path.read_bytes())
    for name in ("promises", "extras"):
        del file.header[name]
    assert file.header["format"] == 1
    for row in file.header["certificate"]:
        for name in ("visible", "unseen", "moved", "note", "curves"):
            del row[name]
    path.write_bytes(file.written())
    loaded = ig.Attribution.load(path)
    assert loaded.certificate.promises == ()
    assert loaded.certificate[0].score == results()["batch"].certificate[0].score
    assert loaded.certificate[0].visible is None
    sums = loaded.sums(torch.arange(6) // 3)
    assert not sums.known
    assert bool(sums.errors.isnan().all())


def test_what_happens_to_the_file_later_does_not_reach_the_values(tmp_path: Path) -> None:
    path = results()["batch"].save(tmp_path / "r.safetensors")
    loaded = ig.Attribution.load(path)
    with path.open("r+b") as file:
        file.truncate(0)
    assert bits(loaded.values) == bits(results()["batch"].values)
    again = ig.Attribution.load(loaded.save(path))
    assert ig.Attribution.load(again.save(path)).meta == loaded.meta  # over the file that it came from


# ---- what is refused -------------------------------------------------------------------------------------------------------


def changed(kind: str, path: Path, change: Callable[[Any, Any], object]) -> Path:
    """A saved file whose header, and what it says of tensors, were changed."""
    results()[kind].save(path)
    file = Opened.of(path.read_bytes())
    change(file.header, file.tensors)
    path.write_bytes(file.written())
    return path


def put(*place: Any) -> Callable[[Any, Any], None]:
    """Put the last argument where the others lead to in the header."""

    def change(header: Any, _: Any) -> None:
        *way, last, value = place
        for step in way:
            header = header[step]
        header[last] = value

    return change


def described(name: str, **changes: Any) -> Callable[[Any, Any], None]:
    return lambda _, tensors: tensors[name].update(changes)


EVIL = f"<{MARK}>"
BAD = {
    "a text for a number": (
        "batch",
        put("certificate", 0, "gradients", EVIL),
        r"\.certificate\[0\]\.gradients is '<fuzzmark>'; exp",
    ),
    "a text in a curve": ("curves", put("certificate", 0, "curves", 1, "gradients", EVIL), r"curves\[1\]\.gradients is '<fuzz"),
    "true for a number": (
        "batch",
        put("certificate", 0, "forwards", True),
        r"forwards is True; expected a whole number from 0",
    ),
    "half a gradient": ("batch", put("certificate", 0, "gradients", 1.5), r"gradients is 1\.5; expected a whole number"),
    "a negative count": ("batch", put("certificate", 0, "forwards", -1), r"forwards is -1; expected a whole number from 0 on"),
    "a negative error": ("batch", put("certificate", 0, "error", -0.1), r"error is -0\.1; expected a number from 0 on"),
    "a number too large": (
        "batch",
        put("certificate", 0, "score", 10**400),
        r"score is a number of very many digits; expected",
    ),
    "a share above one": ("batch", put("certificate", 0, "visible", 1.5), r"visible is 1\.5; expected a number from 0 to 1"),
    "an unknown weight": (
        "curves",
        put("certificate", 0, "curves", 0, "weight", math.nan),
        r"weight is nan; expected a finite",
    ),
    "another status": (
        "batch",
        put("certificate", 0, "status", "FINE"),
        r"status is 'FINE'; expected one of 'CONVERGED', 'BUD",
    ),
    "no status": ("batch", put("certificate", 0, "status", None), r"status is None; expected one of"),
    "another unseen": ("batch", put("certificate", 0, "unseen", "x"), r"unseen is 'x'; expected one of '', 'jump'"),
    "a list for a text": ("batch", put("certificate", 0, "rule", ["x"]), r"rule is a list of 1; expected a text"),
    "a text too long": (
        "batch",
        put("certificate", 0, "note", "x" * (LONGEST_TEXT + 1)),
        r"note is 'xx.*expected a text of at most",
    ),
    "a newer field": ("batch", put("certificate", 0, "novel", 1), r"object with the field 'novel'; .*update integrand"),
    "a newer part": ("batch", put("novel", 1), r"object with the field 'novel'; .*update integrand"),
    "no certificate": ("batch", put("certificate", []), r"certificate is an empty list; expected at least 1 of them"),
    "a certificate too few": ("batch", lambda h, _: h["certificate"].pop(), r"has shape \(3, 6\); expected 2 rows"),
    "two for one": (
        "single",
        lambda h, _: h.update(certificate=h["certificate"] * 2),
        r"2 certificates and no batch dimension",
    ),
    "an axiom twice over": (
        "polyline",
        put("promises", 0, "axiom", "fairness"),
        r"axiom is 'fairness'; expected one of 'compl",
    ),
    "a promise in words": ("polyline", put("promises", 0, "kept", "yes"), r"kept is 'yes'; expected true or false"),
    "batched in words": ("batch", put("batched", "yes"), r"batched is 'yes'; expected true or false"),
    "another kind": ("batch", put("structure", "kind", "list"), r"kind is 'list'; expected one of 'tensor', 'tuple', 'dict'"),
    "keys for a tuple": ("tuple", put("structure", "keys", ["a", "b"]), r"has the keys a list of 2 for 2 tensors"),
    "one key twice": ("dict", put("structure", "keys", ["a", "a"]), r"has the keys a list of 2 for 2 tensors"),
    "a size too large": ("tuple", put("structure", "size", 3), r"the tensor 'values\.2' is not there"),
    "a size too small": (
        "tuple",
        put("structure", "size", 1),
        r"it has the tensor 'values\.1', which nothing says the meaning",
    ),
    "millions of tensors": ("tuple", put("structure", "size", 2**40), r"size is 1099511627776; expected a whole number from 1"),
    "an extra of nothing": ("extras", put("extras", {}), r"it has the tensor 'extras\.standard_error\.0'"),
    "meta in numbers": ("batch", put("meta", "torch", 2), r"\.meta\['torch'\] is 2; expected a text"),
    "too much meta": (
        "batch",
        put("meta", {str(i): "" for i in range(1001)}),
        r"meta is an object of 1001; expected at most 1000",
    ),
    "meta as a list": ("batch", put("meta", ["torch"]), r"meta is a list of 1; expected an object"),
    "format in words": ("batch", put("format", "1"), r"format is '1'; expected a whole number"),
    "format zero": ("batch", put("format", 0), r"format is 0; expected a whole number from 1"),
    "other rows": ("batch", described("values.0", shape=[6, 3]), r"'values\.0' has shape \(6, 3\); expected 3 rows"),
    "no rows": ("batch", described("values.0", shape=[]), r"not an attribution|has shape \(\)"),
    "whole numbers": ("batch", described("values.0", dtype="I32"), r"has the type 'I32'; expected one of BF16, F16, F32, F64"),
    "eight bits": ("batch", described("values.0", dtype="F8_E4M3", shape=[3, 24]), r"has the type 'F8_E4M3'"),
    "other rows in extras": (
        "extras",
        described("extras.standard_error.0", shape=[6, 2]),
        r"has shape \(6, 2\); expected 2 rows",
    ),
    "half a profile": ("batch", lambda _, t: t.update(spare=t.pop("profile.mass")), r"'profile\.mass' is not there"),
    "a profile of floats": ("batch", described("profile.piece", dtype="F64"), r"profile\.piece has type 'F64' and shape"),
    "columns of a profile": (
        "batch",
        lambda _, t: t["profile.mass"]["shape"].append(1),
        r"profile\.mass has type 'F64' and shape \(\d+, 1\)",
    ),
    "draws without a scale": ("batch", lambda _, t: t.update(spare=t.pop("draws.scale")), r"'draws\.scale' is not there"),
    "draws of other features": ("batch", described("draws.draws", shape=[3, 12, 4]), r"expected F8_E5M2 and \(3, some, 6\)"),
    "draws of another type": ("batch", described("draws.draws", dtype="F8_E4M3"), r"draws\.draws has type 'F8_E4M3'"),
    "a scale of draws for each feature": ("batch", described("draws.scale", shape=[3, 1]), r"expected F64 and \(3,\)"),
}


@pytest.mark.parametrize("what", BAD)
def test_what_does_not_fit_is_refused(what: str, tmp_path: Path) -> None:
    kind, change, words = BAD[what]
    path = changed(kind, tmp_path / "bad.safetensors", change)
    with pytest.raises(FileError, match=words) as caught:
        ig.Attribution.load(path)
    assert "xpected a file written by Attribution.save" in str(caught.value)
    assert len(str(caught.value)) < 1000 + len(str(path))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: "[" * 100_000 + "]" * 100_000, "nested too deeply"),
        (lambda text: text.replace('"batched": true', '"batched": true, "batched": true'), "'batched' comes twice"),
        (lambda text: text[:-1], "damaged header"),
        (lambda text: "[]", "is an empty list; expected an object with the fields format, structure"),
        (lambda text: "1" * 5000, "damaged header"),
        (lambda text: text.replace("{", '{"\x1b[2J": 1, ', 1), r"damaged header"),
    ],
)
def test_a_header_that_is_no_header_is_refused(change: Callable[[str], str], words: str, tmp_path: Path) -> None:
    path = results()["batch"].save(tmp_path / "bad.safetensors")
    file = Opened.of(path.read_bytes())
    path.write_bytes(file.written(change(json.dumps(file.header))))
    with pytest.raises(FileError, match=words) as caught:
        ig.Attribution.load(path)
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("example", 3, r"profile\.example leads beyond the 3 examples; expected 0 to 2"),
        ("example", -1, r"profile\.example leads beyond"),
        ("piece", -1, r"profile\.piece leads beyond the curves"),
        ("t", 1.5, r"profile\.t has times outside"),
        ("t", math.nan, r"profile\.t has times outside"),
    ],
)
def test_a_profile_that_leads_nowhere_is_refused(column: str, value: float, words: str, tmp_path: Path) -> None:
    result = results()["batch"]
    assert result.profile is not None
    broken = copy.deepcopy(result.profile)
    getattr(broken, column)[-1] = value
    with pytest.raises(FileError, match=words):
        ig.Attribution.load(dataclasses.replace(result, profile=broken).save(tmp_path / "r.safetensors"))


def test_a_profile_out_of_order_is_refused(tmp_path: Path) -> None:
    result = results()["batch"]
    assert result.profile is not None
    turned = type(result.profile)(
        *(getattr(result.profile, part.name)[::-1].copy() for part in dataclasses.fields(result.profile))
    )
    with pytest.raises(FileError, match="the profile is not sorted"):
        ig.Attribution.load(dataclasses.replace(result, profile=turned).save(tmp_path / "r.safetensors"))


def test_only_ordinary_files_are_opened(tmp_path: Path) -> None:
    """To open a pipe would wait for somebody to write to it, and a device has no end."""
    pipe = tmp_path / "pipe.safetensors"
    os.mkfifo(pipe)
    for path, words in ((pipe, "is a pipe"), (tmp_path, "is a folder"), (Path("/dev/zero"), "is a device")):
        with pytest.raises(FileError, match=words):
            ig.Attribution.load(path)


def test_sizes_that_cannot_be_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "large.safetensors"
    path.write_bytes(b"")
    os.truncate(path, 1 << 42)  # nothing of it is on the disk
    with pytest.raises(FileError, match=r"has 4398046511104 bytes; expected an attribution that fits into memory"):
        ig.Attribution.load(path)
    for length in (0, 1 << 20, LARGEST_HEADER + 1, 2**64 - 1):
        path.write_bytes(struct.pack("<Q", length) + b"{}")
        with pytest.raises(FileError, match=rf"its header has {length} bytes of 10"):
            ig.Attribution.load(path)
    path.write_bytes(b"short")
    with pytest.raises(FileError, match="is not an attribution"):
        ig.Attribution.load(path)
    file = Opened.of(results()["batch"].save(path).read_bytes())
    file.tensors["values.0"] |= {"shape": [3, 2**60], "data_offsets": [0, 3 * 2**62]}
    path.write_bytes(file.written())
    with pytest.raises(FileError, match="is not an attribution"):
        ig.Attribution.load(path)


def test_what_could_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    path, result = tmp_path / "r.safetensors", results()["batch"]
    for changes, words in (
        ({"meta": {"seed": 3}}, r"cannot be saved: the result\.meta\['seed'\] is 3; expected a text"),
        ({"certificate": ig.Certificate(())}, "cannot be saved: the result.certificate is an empty list"),
        ({"certificate": ig.Certificate(result.certificate.examples[:2])}, "expected 2 rows, one for each certificate"),
        ({"values": result.values.long()}, r"has the type 'torch\.int64|has the type 'I64'"),
        ({"extras": {"seen": torch.ones(2, 3)}}, r"'extras\.seen\.0' has shape \(2, 3\); expected 3 rows"),
    ):
        with pytest.raises(InputError, match=words):
            dataclasses.replace(result, **changes).save(path)  # type: ignore[arg-type]
        assert list(tmp_path.iterdir()) == []


def test_a_file_is_complete_or_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(figure: object, part: Path, **options: object) -> None:
        part.write_bytes(b"half of a pic")
        raise OSError(28, "No space left on device")

    pytest.importorskip("matplotlib")
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", full)
    path = tmp_path / "r.png"
    path.write_bytes(b"old")
    with pytest.raises(FileError, match="No space left on device"):
        results()["batch"].save(path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
    for name in ("r.html", "r.safetensors"):
        with pytest.raises(FileError, match="cannot be written"):
            results()["batch"].save(tmp_path / "nowhere" / name)


# ---- one certificate -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_certificate_from_its_fields(kind: str) -> None:
    for one in results()[kind].certificate:
        row = json.loads(json.dumps(dataclasses.asdict(one) | {"status": one.status.name}))
        before = copy.deepcopy(row)
        assert repr(example_of(row)) == repr(one)
        assert repr(row) == repr(before)
        assert row == stored(one) or "nan" in repr(row)


@pytest.mark.parametrize("row", [None, [], "x", 3, {}, {"score": 1.0}, {"status": "EXACT"}])
def test_fields_that_are_no_certificate(row: Any) -> None:
    with pytest.raises(FileError, match=r"^the certificate is .*; expected .*field"):
        example_of(row)


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["EXACT", "jump", "CONVERGED"]),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(), inside, max_size=3),
    max_leaves=5,
)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([part.name for part in dataclasses.fields(ig.ExampleCertificate)]), ANY_JSON)
def test_anything_in_a_field_is_refused_or_of_its_type(name: str, value: Any) -> None:
    row = stored(results()["curves"].certificate[0]) | {name: value}
    try:
        one = example_of(row)
    except FileError as error:
        assert f".{name}" in str(error)  # noqa: PT017  both may happen
        return
    str(one)
    assert repr(example_of(json.loads(json.dumps(stored(one))))) == repr(one)
    assert report(ig.Attribution(torch.ones(1, 2), ig.Certificate((one,))))


def test_axioms_of_promises_are_those_of_the_package() -> None:
    row = {"axiom": AXIOMS[0], "kept": True}
    assert fitted(ig.Promise, row, what="it") == ig.Promise(AXIOMS[0], True)


def test_json_says_nothing_twice() -> None:
    with pytest.raises(FileError, match=r"^it is not what it should be: the name 'a' comes twice in an object. Expected JSON"):
        parsed('{"a": 1, "a": 2}', what="it")


@pytest.mark.parametrize("text", ["[" + "[]," * MOST_PARTS + "[]]", b"[" + b"0," * MOST_PARTS + b"0]"])
def test_json_that_would_fill_the_memory_is_not_read(text: str | bytes) -> None:
    with pytest.raises(FileError, match=rf"^it has about \d+ values; expected at most {MOST_PARTS}"):
        parsed(text, what="it")


# ---- no examples -----------------------------------------------------------------------------------------------------------


def test_nothing_is_not_converged() -> None:
    empty = ig.Certificate(())
    assert not empty.converged
    assert math.isnan(empty.error)
    assert (empty.gradients, empty.forwards, len(empty)) == (0, 0, 0)
    assert str(empty) == "no examples: nothing is known"


def test_a_terminal_obeys_nothing_in_a_certificate() -> None:
    one = dataclasses.replace(
        results()["unfinished"].certificate.only, note="\x1b[2J", knob="\x9b\u202e", precision="\x07", moved=0.1
    )
    said = str(ig.Certificate((one,), (ig.Promise("\x1b]0;", False),)))
    assert r"\x1b[2J" in said
    assert not set(said) & set("\x1b\x9b\u202e\x07")


# ---- pages -----------------------------------------------------------------------------------------------------------------


def test_a_curve_cannot_bring_html_into_a_page(tmp_path: Path) -> None:
    """What was found: a text as the gradients of a curve stood on the page as it was."""
    evil = "<meta http-equiv=refresh content='0;url=//example.org'>"
    path = changed("curves", tmp_path / "r.safetensors", put("certificate", 0, "curves", 0, "gradients", evil))
    with pytest.raises(FileError, match=r"gradients is .<meta"):
        ig.Attribution.load(path)
    one = results()["curves"].certificate[0]
    curve = dataclasses.replace(one.curves[0], gradients=evil)  # type: ignore[arg-type]
    broken = ig.Certificate((dataclasses.replace(one, curves=(curve,)),) * 2)
    assert "<meta http-equiv=refresh" not in report(dataclasses.replace(results()["curves"], certificate=broken))


# ---- at random -------------------------------------------------------------------------------------------------------------


def test_changed_files_are_refused_or_can_be_used() -> None:
    """The short version of ``python -m benchmarks.fuzz_results``."""
    wrong: list[str] = []
    assert tuple(results()) == KINDS
    found = fuzzed(120, 1, pictures=50, tell=wrong.append)
    assert wrong == []
    assert found["loaded"] > 15
    assert found["refused"] > 50


def test_a_foreign_tensor_file_stays_foreign(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    save_file({"layer.weight": torch.ones(3)}, str(path), metadata={"format": "pt"})
    with pytest.raises(FileError, match="a safetensors file but not an attribution"):
        ig.Attribution.load(path)


@pytest.mark.skipif(not hasattr(signal, "SIGXFSZ"), reason="needs a limit on the size of files")
def test_a_full_disk_is_a_file_error(tmp_path: Path) -> None:
    """safetensors has an error of its own, which is no OSError."""
    code = """
import resource, signal, sys, torch, integrand as ig
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
found = ig.integrated_gradients(torch.nn.Linear(9000, 1).eval(), torch.ones(1, 9000))
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
try:
    found.save(sys.argv[1])
except ig.errors.FileError as error:
    print("refused", error)
"""
    command = [sys.executable, "-c", code, str(tmp_path / "a.safetensors")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "refused" in done.stdout, done.stderr
    assert not list(tmp_path.iterdir())
