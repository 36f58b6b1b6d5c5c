"""Loading the user's code: `module:function`, `file.py:function`, or another object of a module."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.agent_host.entry_point import callable_problem
from assay.agent_host.tracebacks import user_traceback
from assay.errors import InvalidInputError, Problem
from assay.parsing.names import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType


class AgentImportError(InvalidInputError):
    """The user's module raised during import; `user_traceback` is its traceback without Assay's frames."""

    reason = "AGENT_IMPORT_FAILED"

    def __init__(
        self,
        target: str,
        user_traceback: str,
        field: str,
        *,
        failure: str = "failed to import",
        others: Sequence[Problem] = (),
    ) -> None:
        super().__init__([Problem(f"{target!r} {failure} (traceback below)", field), *others])
        self.target = target
        self.field = field
        self.user_traceback = user_traceback


def load_agent(target: str, base_dir: Path, *, has_lifespan: bool = False) -> Callable[..., Any]:
    """Return the function or class of a target.

    Args:
        target: "module:function" or "file.py:function"; the function may be an attribute path, or a class.
        base_dir: The spec's folder, which is searched first for modules.
        has_lifespan: Whether a second parameter is allowed, for the lifespan's resource.

    Raises:
        AgentImportError: The module raised an exception.
        InvalidInputError: The module or function does not exist, or cannot be called with one question.
    """
    agent = load_object(target, base_dir)
    problem = callable_problem(agent)
    if problem and not (has_lifespan and not callable_problem(agent, with_opened=True)):
        raise _refusal(f"{target!r} {problem}")
    return agent  # type: ignore[no-any-return]  # it has just been checked


def load_object(target: str, base_dir: Path, kind: str = "function", field: str = "agent.target") -> Any:
    """Return the object of a target.

    Args:
        target: "module:object" or "file.py:object"; the object may be an attribute path.
        base_dir: The spec's folder, which is searched first for modules.
        kind: The expected kind, as one word for messages.
        field: The field of the spec that has the target.

    Raises:
        AgentImportError: The module raised an exception.
        InvalidInputError: The module or object does not exist.
    """
    module_name, _, attribute = target.rpartition(":")
    if not module_name or not attribute:
        raise _refusal(f"{target!r} does not name a {kind}: write module:{kind} or file.py:{kind}", field)
    _put_first(base_dir)
    is_file = module_name.endswith(".py")
    place = _Place(target, field)
    module = _import_file(base_dir / module_name, place) if is_file else _import(module_name, place, base_dir)
    value: Any = module
    for part in attribute.split("."):
        if not hasattr(value, part):
            close = nearest(part, [name for name in dir(value) if not name.startswith("_")])
            hint = f"; did you mean {close!r}?" if close else ""
            raise _refusal(f"{module_name} has no {part!r}{hint}", field)
        value = getattr(value, part)
    return value


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of a target in a spec, for messages."""

    target: str
    field: str


def _put_first(folder: Path) -> None:
    text = str(folder.resolve())
    if text in sys.path:
        sys.path.remove(text)
    sys.path.insert(0, text)


def _import(name: str, place: _Place, base_dir: Path) -> ModuleType:
    file = base_dir / f"{name}.py"
    loaded = sys.modules.get(name)
    if loaded is not None and file.is_file() and not _is_from(loaded, file):
        # A module of that name was loaded from elsewhere: from Python itself, or for another spec.
        return _import_file(file, place)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise _refusal(
                f"there is no module {error.name!r} in the spec's folder or among the installed packages", place.field
            ) from None
        raise AgentImportError(place.target, _user_traceback(error), place.field) from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - importing runs the user's code
        raise AgentImportError(place.target, _user_traceback(error), place.field) from None


def _import_file(path: Path, place: _Place) -> ModuleType:
    path = path.resolve()
    if not path.is_file():
        raise _refusal(f"there is no file {path}", place.field)
    name = path.stem if path.stem not in sys.modules else f"assay_agent_{path.stem}"
    for known in (path.stem, name):
        if known in sys.modules and _is_from(sys.modules[known], path):
            return sys.modules[known]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, "the name ends in .py"
    assert spec.loader is not None, "a file has a loader"
    _put_first(path.parent)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - importing runs the user's code
        sys.modules.pop(name, None)
        raise AgentImportError(place.target, _user_traceback(error), place.field) from None
    return module


def _is_from(module: ModuleType, path: Path) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and Path(file).resolve() == path.resolve()


def _user_traceback(error: BaseException) -> str:
    return user_traceback(error) or "".join(traceback.format_exception_only(error)).rstrip()


def _refusal(message: str, field: str = "agent.target") -> InvalidInputError:
    return InvalidInputError([Problem(message, field)], reason="AGENT_NOT_FOUND")
