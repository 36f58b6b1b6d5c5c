"""Deferred imports of modules that other packages import and rarely use."""

from __future__ import annotations

import importlib
import sys
from contextlib import contextmanager
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Deferred(ModuleType):
    """A placeholder for a module until one of its attributes is read."""

    def __getattr__(self, attribute: str) -> Any:
        # What looks through all modules, as `inspect` does, needs none of them.
        if attribute.startswith("__") and attribute != "__path__":
            raise AttributeError(attribute)
        return getattr(_loaded(self), attribute)


def defer_imports(*names: str) -> None:
    """Defer modules: import each when an attribute of it is first read, not at the `import` statement.

    Modules that are already imported stay. A module imported for its side effect has none until then: see
    `import_deferred`.

    Args:
        names: Module names, e.g. `package.module`.
    """
    for name in names:
        if name in sys.modules:
            continue
        stub = sys.modules[name] = _Deferred(name)
        package, _, own = name.rpartition(".")
        if package in sys.modules:  # else `from package import module` finds it where all modules are
            setattr(sys.modules[package], own, stub)


def import_deferred(*names: str) -> None:
    """Import those of these modules that are still deferred."""
    for name in names:
        if isinstance(stub := sys.modules.get(name), _Deferred):
            _loaded(stub)


@contextmanager
def imported_when_called(module: str, function: str) -> Iterator[None]:
    """Make `from module import function` yield a stand-in that imports the module when called.

    If the module is already imported or not installed, nothing changes.
    """
    if module in sys.modules or find_spec(module) is None:
        yield
        return
    stub = sys.modules[module] = ModuleType(module)

    def call(*arguments: Any, **options: Any) -> Any:
        if sys.modules.get(module) is stub:
            del sys.modules[module]
        return getattr(importlib.import_module(module), function)(*arguments, **options)

    setattr(stub, function, call)
    try:
        yield
    finally:
        sys.modules.pop(module, None)


def _loaded(stub: _Deferred) -> ModuleType:
    name = stub.__name__
    if sys.modules.get(name) is stub:  # else another thread imports it, and this one waits for that
        del sys.modules[name]
    return importlib.import_module(name)
