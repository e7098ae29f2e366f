"""Finding the modules that a callable runs."""

from __future__ import annotations

import dis
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from types import CodeType, FunctionType, ModuleType
from typing import Any

from torch import Tensor, nn

DEPTH = 5
"""How far to look: a partial of a bound method of an object with a list of modules is this deep."""

MOST = 1000
"""Longer containers hold data, not modules."""

_CONTAINERS = (list, tuple, set, dict)


def modules_of(model: Callable[..., Any]) -> list[nn.Module]:
    """The modules that a callable runs, as far as can be seen: itself, its closure, its object, what it names.

    >>> net = nn.Linear(2, 1)
    >>> modules_of(lambda x: net(x).sigmoid()) == [net]
    True
    """
    found: dict[int, nn.Module] = {}
    seen: dict[int, object] = {}  # the objects too, so that no id is used again
    waiting: list[tuple[object, int]] = [(model, 0)]
    for value, depth in waiting:
        if id(value) in seen or depth > DEPTH:
            continue
        seen[id(value)] = value
        if isinstance(value, nn.Module):
            module = getattr(value, "_orig_mod", value)  # what torch.compile wraps
            found[id(module)] = module
        else:
            waiting += [(part, depth + 1) for part in _parts(value)]
    return list(found.values())


def all_modules(roots: Iterable[nn.Module]) -> list[nn.Module]:
    """Modules and all that is below them, each once; ``nn.Module.modules`` takes several times as long."""
    found: dict[int, nn.Module] = {}
    waiting = list(roots)
    while waiting:
        module = waiting.pop()
        if id(module) not in found:
            found[id(module)] = module
            waiting += [child for _, child in module._modules.items() if child is not None]
    return list(found.values())


def _parts(value: object) -> Iterable[object]:
    """What a value holds that might be, or hold, a module that it runs."""
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    if inspect.ismethod(value):
        return [value.__self__, value.__func__]
    if inspect.isfunction(value):
        return _reachable(value)
    if isinstance(value, (Mapping, *_CONTAINERS)):
        parts = value.values() if isinstance(value, Mapping) else value
        return parts if len(value) <= MOST else []
    if isinstance(value, (type, ModuleType, Tensor)):
        return []
    slots = [name for kind in type(value).__mro__ for name in _listed(vars(kind).get("__slots__", ()))]
    held = [*getattr(value, "__dict__", {}).values(), *(getattr(value, name, None) for name in slots)]
    # An object's modules, and what it may call; not every object that it knows.
    return [part for part in held if isinstance(part, (nn.Module, *_CONTAINERS)) or callable(part)]


def _listed(slots: str | Iterable[str]) -> list[str]:
    return [slots] if isinstance(slots, str) else list(slots)


def _reachable(function: FunctionType) -> list[object]:
    """What a function can see by name: closure, defaults, and the globals it reads (functions only of the same file)."""
    parts: list[object] = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    for cell in function.__closure__ or ():
        try:
            parts.append(cell.cell_contents)
        except ValueError:  # a cell that is not filled yet
            continue
    space = function.__globals__
    named = [space[name] for name in _global_names(function.__code__) if name in space]
    return parts + [part for part in named if not inspect.isfunction(part) or part.__globals__ is space]


@lru_cache(maxsize=256)
def _global_names(code: CodeType) -> frozenset[str]:
    """The globals that code reads, functions and comprehensions inside it included; attributes are not among them."""
    names = {step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return frozenset(names).union(*(_global_names(part) for part in code.co_consts if isinstance(part, CodeType)))
