"""Modules that other packages import and hardly ever use: put off until something of them is used."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any


def defer_imports(*names: str) -> None:
    """Have modules of packages imported when an attribute of theirs is first read, not by the statement `import`.

    What is imported already stays.

    Args:
        names: Such as `package.module`.
    """
    for name in names:
        if name not in sys.modules:
            _defer(name)


def _defer(name: str) -> None:
    package, _, own = name.rpartition(".")
    stub = ModuleType(name)

    def read(attribute: str) -> Any:
        if sys.modules.get(name) is stub:  # else another thread imports it: this one waits for it
            del sys.modules[name]
        return getattr(importlib.import_module(name), attribute)

    stub.__getattr__ = read  # type: ignore[method-assign]  # how a module reads attributes that it does not have
    sys.modules[name] = stub
    setattr(importlib.import_module(package), own, stub)
