"""What results depend on, and what inputs are, as digests: two runs may share a table if these are the same.

:func:`settings_of` describes what explains inputs, whatever it is: a model's weights, the options that were bound to it, the
code of a function. :func:`digest_of_input` describes an input, so that one that changed under the same key is explained again.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import dis
import enum
import functools
import hashlib
import inspect
import json
import logging
import re
import sys
import types
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import FileError
from ..files import digest_of
from ..functions.model_state import modules_of
from ..version import version_of

DEPTH = 12
"""How far objects are looked into."""

MOST_PARTS = 100
"""Lists and dicts that are longer count by a digest: they are data."""

LONGEST_TEXT = 10_000
"""Texts of more characters count by a digest: they are data."""

MOST_DESCRIBED = 5000
"""The most functions, objects and containers that are described; what comes after them counts by its kind alone."""

_ADDRESS = re.compile(r"(?: at)? 0x[0-9a-fA-F]+")


def settings_of(explain: object) -> dict[str, Any]:
    """Everything that is known of what explains inputs, as JSON values: options, weights, code, and the software's versions.

    The same in every process: nothing in it depends on addresses, on the order of sets, or on what has run before. An object
    may say itself what counts, with an attribute ``settings`` that is a mapping.

    Args:
        explain: a function, a method, a partial of one, or an object that can be called.
    """
    made = {"integrand": version_of(), "torch": torch.__version__.partition("+")[0]}
    describer = Describer()
    own = getattr(explain, "settings", None)
    if isinstance(own, Mapping):
        return made | {name: describer.described(value) for name, value in own.items()}
    found = describer.described(explain)
    others = [module for module in modules_of(explain) if not describer.knows(module)] if callable(explain) else []
    return made | {"explain": found} | ({"networks": describer.described(others)} if others else {})


def described(value: object) -> Any:
    """A value as JSON: itself if it is a plain one, a digest where it is data, a description where it is an object."""
    return Describer().described(value)


class Describer:
    """Describes values as JSON, each object once."""

    def __init__(self, *, classes: bool = False) -> None:
        """Begin with nothing described.

        Args:
            classes: whether what is described is the code of a class, so that classes it names are part of it.
        """
        self._classes = classes
        self._networks: dict[int, tuple[nn.Module, dict[str, Any]]] = {}
        self._count = 0
        self._met: dict[int, object] = {}  # the objects too, so that no id is used again

    def knows(self, module: nn.Module) -> bool:
        """Whether a network was described."""
        return id(module) in self._networks

    def described(self, value: object, depth: int = 0) -> Any:
        """A value as JSON."""
        if _is_plain(value):
            if isinstance(value, str) and len(value) > LONGEST_TEXT:
                return {"digest": digest_of_input(value), "length": len(value)}
            return value
        if isinstance(value, Path) and value.is_file():  # weights, a vocabulary: what is in it counts too
            return {"path": str(value), "digest": digest_of(value, most=sys.maxsize)[:16]}
        if isinstance(value, (Path, torch.dtype, torch.device)):
            return str(value)
        if isinstance(value, nn.Module):
            return self._network(value)
        if isinstance(value, (Tensor, np.ndarray, np.generic, bytes, bytearray)):
            return {"digest": digest_of_input(value)}
        if isinstance(value, types.ModuleType):
            return {"module": value.__name__}
        if isinstance(value, (logging.Logger, logging.Handler)):  # what is logged, and by how many, changes no result
            return {"class": _name(type(value))}
        if isinstance(value, (Mapping, list, tuple, set, frozenset)) and len(value) > MOST_PARTS:
            return {"digest": digest_of_input(value), "length": len(value)}
        self._count += 1
        if depth > DEPTH or self._count > MOST_DESCRIBED:
            return {"class": _name(type(value))}
        if isinstance(value, Mapping):
            return {_ADDRESS.sub("", str(name)): self.described(part, depth + 1) for name, part in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.described(part, depth + 1) for part in value]
        if isinstance(value, (set, frozenset)):
            parts = [self.described(part, depth + 1) for part in value]
            return sorted(parts, key=lambda part: json.dumps(part, sort_keys=True))
        if id(value) in self._met:
            return {"again": _name(value if isinstance(value, type) or inspect.isroutine(value) else type(value))}
        if not inspect.ismethod(value):  # methods are made anew each time they are asked for
            self._met[id(value)] = value
        return self._described(value, depth)

    def _described(self, value: Any, depth: int) -> Any:
        """Something with a code or with parts, met for the first time."""
        if isinstance(value, functools.partial):
            bound = {"arguments": list(value.args)} if value.args else {}
            options = {"options": self.described(bound | dict(value.keywords), depth + 1)}
            inner = self.described(value.func, depth + 1)
            # Beside what the function is by itself, so that another option is told as that and nothing else.
            return (
                {**inner, **options} if isinstance(inner, dict) and "options" not in inner else {"function": inner, **options}
            )
        if inspect.ismethod(value):
            function = value.__func__
            code = self._function(function, depth) if isinstance(function, types.FunctionType) else {}
            return {"method": value.__func__.__qualname__} | code | {"of": self.described(value.__self__, depth + 1)}
        if inspect.isfunction(value):
            return {"function": _name(value)} | self._function(value, depth)
        if isinstance(value, type):
            return {"class": _name(value)} | self._class_code(value, depth)
        if isinstance(value, enum.Enum) or inspect.isbuiltin(value):
            return str(value) if isinstance(value, enum.Enum) else _name(value)
        if (inner := getattr(value, "__wrapped__", None)) is not None:  # functools.lru_cache, and decorators like it
            return {"class": _name(type(value)), "function": self.described(inner, depth + 1)}
        return self._object(value, depth)

    def _function(self, function: types.FunctionType, depth: int) -> dict[str, Any]:
        """What a function depends on: its code, its defaults, what it has closed over, and what it names outside of itself."""
        held = {}
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                held[name] = self.described(cell.cell_contents, depth + 1)
            except ValueError:  # a cell that is not filled yet
                continue
        parts: dict[str, Any] = {"closure": held} if held else {}
        if is_installed(function):
            return parts
        defaults = {"positional": list(function.__defaults__ or ())} if function.__defaults__ else {}
        if defaults := defaults | dict(function.__kwdefaults__ or {}):
            parts["defaults"] = self.described(defaults, depth + 1)
        if used := {name: self.described(value, depth + 1) for name, value in _globals_of(function)}:
            parts["uses"] = used
        return {"code": _code(function.__code__)} | parts

    def _object(self, value: Any, depth: int) -> Any:
        """An object by its class and its fields; by its ``settings``, if it has them."""
        found = {"class": _name(type(value))} | self._class_code(type(value), depth)
        if isinstance(own := getattr(value, "settings", None), Mapping):
            return found | self.described(dict(own), depth + 1)
        call = inspect.getattr_static(type(value), "__call__", None)
        if isinstance(call, types.FunctionType) and not is_installed(call):
            found["call"] = self._function(call, depth + 1)
        fields = _fields(value)
        if fields is None:
            text = _ADDRESS.sub("", repr(value))
            return found | {"text": text if len(text) <= MOST_PARTS else digest_of_input(text)}
        return found | {name: self.described(part, depth + 1) for name, part in _chosen(type(value), fields).items()}

    def _network(self, module: nn.Module) -> dict[str, Any]:
        """A network by its weights, its structure, and its code if it is the user's."""
        if id(module) not in self._networks:
            inside = list(getattr(module, "_orig_mod", module).modules())
            # Before its parts, one of which may hold the network; to describe one once more would hash its weights again.
            name = _name(type(module))
            self._networks[id(module)] = module, {"network": name}
            for one in inside:
                self._networks.setdefault(id(one), (one, {"network": _name(type(one)), "in": name}))
            structure = hashlib.sha256(_text_of(module).encode("utf-8", "replace"))
            codes: dict[str, Any] = {}
            for one in inside:
                if not is_installed(type(one)) and _name(type(one)) not in codes:
                    codes[_name(type(one))] = self._class_code(type(one), 0)
                for field, part in _options_of(one).items():
                    told = json.dumps(self._apart().described(part), sort_keys=True, default=str)
                    structure.update(f"{field}={told}".encode("utf-8", "replace"))
            found = {"network": name, "weights": weights_digest(module), "structure": structure.hexdigest()[:16]}
            if codes:
                found["code"] = digest_of_input(json.dumps(codes, sort_keys=True))
            self._networks[id(module)] = module, found
        return self._networks[id(module)][1]

    def _apart(self) -> Describer:
        """One that knows the same networks, and nothing else of what was described."""
        found = Describer(classes=self._classes)
        found._networks = self._networks
        return found

    def _class_code(self, kind: type, depth: int) -> dict[str, Any]:
        """The code of a class of the user's, with what it uses, its values, and what it inherits from others of the user's.

        It does not depend on what was described before.
        """
        own = [one for one in kind.__mro__ if not is_installed(one)]
        if not own:
            return {}
        if not self._classes:
            return Describer(classes=True)._class_code(kind, 0)
        self._met[id(kind)] = kind
        found: dict[str, Any] = {}
        for one in own:
            for name, value in sorted(vars(one).items()):
                if (function := _behind(value)) is not None:
                    found.setdefault(name, self._function(function, depth + 1))
                elif _is_plain(value) and not name.startswith("__"):
                    found.setdefault(name, value)
                elif isinstance(value, _DATA) and not name.startswith("_"):
                    found.setdefault(name, self.described(value, depth + 1))
        return {"code": digest_of_input(json.dumps(found, sort_keys=True, default=str))} if found else {}


_DATA = (list, tuple, dict, set, frozenset, Tensor, np.ndarray)
"""What a class holds beside plain values and functions, and results may depend on."""

_OF_ALL_MODULES = frozenset(vars(nn.Module()))
"""Fields that are not a network's own."""


def _options_of(module: nn.Module) -> dict[str, Any]:
    """What a network holds beside weights. Of those of other packages too, whose text leaves out the heads of an attention."""
    own = {name: part for name, part in vars(module).items() if name not in _OF_ALL_MODULES}
    if is_installed(kind := type(module)):
        return {name: part for name, part in _chosen(kind, own).items() if _is_plain(part) or inspect.isroutine(part)}
    temporary = {name: module._buffers.get(name) for name in sorted(module._non_persistent_buffers_set)}
    changed = _changed_by(kind)
    lists = {name: part for name, part in own.items() if isinstance(part, (list, tuple)) and name not in changed}
    return temporary | lists | _chosen(kind, own)


def _text_of(module: nn.Module) -> str:
    try:
        return _ADDRESS.sub("", repr(module))
    except Exception:  # a repr of the user's
        return _name(type(module))


def _is_plain(value: object) -> bool:
    return value is None or (isinstance(value, (bool, int, float, str)) and not isinstance(value, enum.Enum))


def _counts(value: object) -> bool:
    """Whether a private field of an object is described: options and functions are, caches, locks and handles are not."""
    known = (Tensor, np.ndarray, nn.Module, functools.partial, types.FunctionType, types.MethodType)
    return _is_plain(value) or isinstance(value, known)


def _chosen(kind: type, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the fields of an object that count: of the user's classes private ones too, but none that change as it works."""
    ours = not is_installed(kind)
    changed = _changed_by(kind) if ours else frozenset()
    open_to_all = {name: part for name, part in fields.items() if not name.startswith("_") or (ours and _counts(part))}
    return {name: part for name, part in open_to_all.items() if name not in changed}


def _changed_by(kind: type) -> frozenset[str]:
    """The fields that an object of the user's sets while it is called: what it has counted or kept of the last inputs."""
    codes = [_behind(inspect.getattr_static(kind, name, None)) for name in ("__call__", "forward")]
    return frozenset().union(*(_names_in(one.__code__)[3] for one in codes if one is not None and not is_installed(one)))


def _fields(value: Any) -> dict[str, Any] | None:
    """The fields of an object; None if it has none that can be seen."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: getattr(value, one.name, None) for one in dataclasses.fields(value)}
    slots = [name for kind in type(value).__mro__ for name in _listed(vars(kind).get("__slots__", ()))]
    own = getattr(value, "__dict__", None)
    if own is None and not slots:
        return None
    known = {name: getattr(value, name) for name in slots if name not in ("__dict__", "__weakref__") and hasattr(value, name)}
    return known | dict(own or {})


def _listed(names: Any) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def _name(value: Any) -> str:
    """The full name of a class or a function."""
    return _ADDRESS.sub("", f"{getattr(value, '__module__', None) or ''}.{getattr(value, '__qualname__', repr(value))}")


def is_installed(value: object) -> bool:
    """Whether a class or a function comes with an installed package, whose code does not change while its version does not."""
    return _is_installed((getattr(value, "__module__", None) or "").partition(".")[0])


@functools.cache
def _is_installed(package: str) -> bool:
    if package in ("integrand", "builtins") or (package in sys.stdlib_module_names and package != "__main__"):
        return True
    place = Path(getattr(sys.modules.get(package), "__file__", None) or "")
    return bool({"site-packages", "dist-packages"} & set(place.parts))


def _globals_of(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """What a function names outside of itself: constants, functions, objects, and what it takes from the user's modules.

    Not what it changes itself, such as a cache or a counter: that says what has run before.
    """
    loaded, stored, names, _ = _names_in(function.__code__)
    changed = _changed_in(function.__code__)
    for name in sorted(loaded - stored):
        if name not in function.__globals__:
            continue  # built in, or missing
        value = function.__globals__[name]
        if name in changed and _can_be_kept_in(value):
            continue
        if not isinstance(value, types.ModuleType):
            yield name, value
        elif not _is_installed(value.__name__.partition(".")[0]):
            yield from _taken(name, value, names, {id(value)})


def _taken(path: str, module: types.ModuleType, names: frozenset[str], seen: set[int]) -> Iterator[tuple[str, Any]]:
    """What may be meant by these names in a module of the user's, and in modules of it."""
    for name in sorted(names):
        if not hasattr(module, name):
            continue
        value = getattr(module, name)
        if not isinstance(value, types.ModuleType):
            yield f"{path}.{name}", value
        elif id(value) not in seen and not _is_installed(value.__name__.partition(".")[0]):
            seen.add(id(value))
            yield from _taken(f"{path}.{name}", value, names, seen)


@functools.lru_cache(maxsize=4096)
def _names_in(code: types.CodeType) -> tuple[frozenset[str], frozenset[str], frozenset[str], frozenset[str]]:
    """The names that a code, and those within it, load from outside, store there, use at all, and store as fields."""
    steps = list(dis.get_instructions(code))
    loaded = {str(step.argval) for step in steps if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    stored = {str(step.argval) for step in steps if step.opname in ("STORE_GLOBAL", "DELETE_GLOBAL")}
    names = set(code.co_names)
    fields = {str(step.argval) for step in steps if step.opname == "STORE_ATTR"}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            more = _names_in(constant)
            loaded, stored, names, fields = loaded | more[0], stored | more[1], names | more[2], fields | more[3]
    return frozenset(loaded), frozenset(stored), frozenset(names), frozenset(fields)


_CHANGES = frozenset(
    "append appendleft extend insert add update setdefault pop popleft popitem remove discard clear sort reverse".split()
)
"""Methods by which lists, dicts and sets change."""


@functools.lru_cache(maxsize=4096)
def _changed_in(code: types.CodeType) -> frozenset[str]:
    """The names from outside whose values a code, and those within it, change, or something in them.

    ``CACHE[key] = x``, ``SEEN.append(x)``, ``STATE.count += 1``: the instruction that has put the changed value onto the stack
    is looked for backwards.
    """
    found = set()
    steps = list(dis.get_instructions(code))
    for i, step in enumerate(steps):
        method = step.opname in ("LOAD_METHOD", "LOAD_ATTR") and str(step.argval) in _CHANGES
        # How many values lie on the stack from the changed one upwards: it and a key, or it alone.
        depth = 2 if step.opname in ("STORE_SUBSCR", "DELETE_SUBSCR") else 1 if method or step.opname == "STORE_ATTR" else 0
        if depth and i and steps[i - 1].opname == "SWAP":  # +=, which has the new value above them
            depth += 1
        for before in reversed(steps[:i] if depth else ()):
            depth -= dis.stack_effect(before.opcode, before.arg, jump=False)
            if depth <= 0:
                found |= {str(before.argval)} if before.opname in ("LOAD_GLOBAL", "LOAD_NAME") else set()
                break
    inner = [_changed_in(constant) for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return frozenset(found).union(*inner)


def _can_be_kept_in(value: object) -> bool:
    """Whether a value may be a cache or a counter: not code, and no arrays, whose methods of these names change nothing."""
    fixed = (types.ModuleType, type, Tensor, np.ndarray, nn.Module, functools.partial)
    return not (isinstance(value, fixed) or inspect.isroutine(value))


@functools.lru_cache(maxsize=4096)
def _code(code: types.CodeType) -> str:
    found = hashlib.sha256(code.co_code)
    found.update(repr([_constant(constant) for constant in code.co_consts]).encode("utf-8", "replace"))
    found.update(" ".join(code.co_names).encode("utf-8", "replace"))
    return found.hexdigest()[:16]


def _constant(value: object) -> str:
    """A constant of a code as text, whatever the order of sets is."""
    if isinstance(value, types.CodeType):
        return _code(value)
    if isinstance(value, (tuple, frozenset)):
        parts = [_constant(part) for part in value]
        return repr(parts if isinstance(value, tuple) else sorted(parts))
    return _ADDRESS.sub("", repr(value))


def _behind(value: Any) -> types.FunctionType | None:
    """The function of a method, of a static one, of a property, of a decorated one."""
    for name in ("__func__", "fget", "func", "__wrapped__"):
        value = getattr(value, name, None) or value
    return value if isinstance(value, types.FunctionType) else None


def weights_digest(*models: object) -> str:
    """A digest of the weights and buffers of those of some objects that are networks; others, such as names, do not count."""
    found = hashlib.sha256()
    for model in models:
        for key, value in model.state_dict().items() if isinstance(model, nn.Module) else ():
            found.update(f"{key}\n{getattr(value, 'dtype', '')}\n{tuple(getattr(value, 'shape', ()))}\n".encode())
            try:
                found.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
            except (AttributeError, RuntimeError, TypeError):  # not a tensor, or one of a kind that is no row of numbers
                found.update(repr(value).encode("utf-8", "replace"))
    return found.hexdigest()


def digest_of_input(item: object) -> str:
    """A digest of an input, 16 characters; empty if nothing can be told of it without running its own code.

    A path counts by what is in its file, which may have changed.

    >>> digest_of_input("a text") == digest_of_input("a text"), digest_of_input("a text") == digest_of_input("another")
    (True, False)
    """
    found = hashlib.blake2b(digest_size=8)
    return found.hexdigest() if _feed(found, item) else ""


_MOMENTS = (datetime.date, datetime.time, datetime.timedelta, decimal.Decimal, uuid.UUID)
"""What tables hold beside numbers and texts, and says all of itself when it is printed."""


def _feed(found: Any, item: object, depth: int = 0) -> bool:
    """Add an input to a digest; whether it could be."""
    found.update(f"{type(item).__name__}:".encode())
    if item is None or isinstance(item, (bool, int, float, complex, range, *_MOMENTS)):
        found.update(repr(item).encode())
    elif isinstance(item, str):
        found.update(item.encode("utf-8", "surrogatepass"))
    elif isinstance(item, (bytes, bytearray)):
        found.update(item)
    elif isinstance(item, Path):
        try:
            found.update(digest_of(item).encode())
        except FileError:
            return False
    elif isinstance(item, Tensor):
        kept = item.detach().cpu().contiguous()
        found.update(f"{kept.dtype}{tuple(kept.shape)}".encode())
        found.update(kept.reshape(-1).view(torch.uint8).numpy())
    elif isinstance(item, (np.ndarray, np.generic)):
        array = np.ascontiguousarray(item)
        if array.dtype.hasobject:
            return False
        found.update(f"{array.dtype}{array.shape}".encode())
        found.update(array.tobytes())
    elif isinstance(item, Mapping) and depth < DEPTH:
        found.update(f"{len(item)}:".encode())
        return all(_feed(found, str(name)) and _feed(found, part, depth + 1) for name, part in item.items())
    elif isinstance(item, (set, frozenset)):
        parts = sorted(digest_of_input(part) for part in item)
        found.update(" ".join(parts).encode())
        return all(parts)
    elif isinstance(item, Sequence) and depth < DEPTH:
        found.update(f"{len(item)}:".encode())
        return all(_feed(found, part, depth + 1) for part in item)
    elif hasattr(item, "tobytes") and hasattr(item, "size") and hasattr(item, "mode"):  # a picture of Pillow's
        found.update(f"{item.mode}{item.size}".encode())
        found.update(item.tobytes())
    else:
        return False
    return True
