"""Finding the user's agent: `module:function` or `file.py:function`."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import InvalidInputError, Problem
from assay.names import nearest

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

__all__ = ["AgentImportError", "load_agent"]


class AgentImportError(InvalidInputError):
    """The user's module raised while it was imported; `user_traceback` is theirs, without Assay's frames."""

    reason = "AGENT_IMPORT_FAILED"

    def __init__(self, target: str, user_traceback: str) -> None:
        super().__init__(
            [Problem(f"{target!r} raised while it was imported; its own traceback follows", "agent.target")]
        )
        self.user_traceback = user_traceback


def load_agent(target: str, base_dir: Path) -> Callable[..., Any]:
    """Return the function that a target names.

    Args:
        target: "module:function" or "file.py:function"; the function may be an attribute path.
        base_dir: The spec's folder; it comes first where modules are looked for.

    Raises:
        AgentImportError: The module raised.
        InvalidInputError: There is no such module or function, or it cannot be called with one question.
    """
    module_name, _, attribute = target.rpartition(":")
    folder = str(base_dir.resolve())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    module = (
        _import_file(module_name, target, base_dir) if module_name.endswith(".py") else _import(module_name, target)
    )
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            close = nearest(part, [name for name in dir(found) if not name.startswith("_")])
            hint = f"; did you mean {close!r}?" if close else ""
            raise _refusal(f"{module_name} has no {part!r}{hint}")
        found = getattr(found, part)
    if not callable(found):
        raise _refusal(f"{target!r} is a {type(found).__name__}, which cannot be called")
    _check_signature(found, target)
    return found  # type: ignore[no-any-return]  # callable() has narrowed Any


def _import(name: str, target: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise _refusal(
                f"there is no module {error.name!r} in the spec's folder or among the installed packages"
            ) from None
        raise AgentImportError(target, _user_traceback(error)) from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - importing runs the user's code
        raise AgentImportError(target, _user_traceback(error)) from None


def _import_file(name: str, target: str, base_dir: Path) -> ModuleType:
    path = base_dir / name
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise _refusal(f"there is no file {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - importing runs the user's code
        sys.modules.pop(path.stem, None)  # as after a failed import of a module
        raise AgentImportError(target, _user_traceback(error)) from None
    return module


def _user_traceback(error: BaseException) -> str:
    """Return the traceback from the first frame outside the import machinery and Assay on."""
    summary = traceback.extract_tb(error.__traceback__)
    user = [frame for frame in summary if "importlib" not in frame.filename and frame.filename != __file__]
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(user)] if user else []
    return "".join([*lines, *traceback.format_exception_only(error)]).rstrip()


def _check_signature(function: Callable[..., Any], target: str) -> None:
    try:
        inspect.signature(function).bind(object())
    except ValueError:
        return  # a builtin without a signature: calling it will tell
    except TypeError:
        signature = inspect.signature(function)
        raise _refusal(f"{target!r} is called with one argument, the question, but it takes {signature}") from None


def _refusal(message: str) -> InvalidInputError:
    return InvalidInputError([Problem(message, "agent.target")], reason="AGENT_NOT_FOUND")
