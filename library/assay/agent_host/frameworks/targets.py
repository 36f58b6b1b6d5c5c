"""Opening an agent of a framework: the framework is there, the target names an object of it, its options load."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import inspect
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from assay.agent_host.loader import AgentImportError, load_object
from assay.agent_host.tracebacks import user_traceback
from assay.errors import InvalidInputError, Problem
from assay.local_stack.install_hint import install_hint
from assay.model.frameworks import FRAMEWORKS, OptionKind

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from assay.model.answers.agent_response import AgentResponse
    from assay.model.frameworks import Framework
    from assay.model.run import AgentSettings


def open_framework_agent(
    agent: AgentSettings, folder: Path, *, has_lifespan: bool = False
) -> Callable[..., Awaitable[AgentResponse]]:
    """Return a function that asks an agent of a framework.

    The framework's module offers `connect(found, options)`: of the object that the target names and of the options,
    of which those that name an object are that object, it makes the function, or raises InvalidInputError where the
    object is none that the framework can run. It may offer `prepare()`, which is called before the user's code is
    imported. Where the function has a method `open`, it is called before each question, and `aclose` at the end. The
    function is called with the request, and with what the agent's lifespan opened where it has one: the option
    `lifespan` is True then.

    Args:
        agent: Checked settings, whose adapter is one of `FRAMEWORKS`.
        folder: The spec's folder, from which code is found.
        has_lifespan: Whether the agent has a lifespan.

    Raises:
        AgentImportError: The user's module raised.
        InvalidInputError: The framework is not installed or another version, or there is no such object.
    """
    framework = FRAMEWORKS[agent.adapter]
    require_framework(framework)
    module = importlib.import_module(f"assay.agent_host.frameworks.{agent.adapter}")
    if hasattr(module, "prepare"):
        module.prepare()
    found = load_object(agent.target, folder, "object")
    options: dict[str, Any] = {
        name: load_object(value, folder, "object", f"agent.{name}")
        if framework.options[name] is OptionKind.OBJECT
        else value
        for name, value in agent.options.items()
    }
    if has_lifespan:
        options["lifespan"] = True
    return module.connect(found, options)  # type: ignore[no-any-return]  # as every module of this package does


def wrong_object(found: object, adapter: str) -> InvalidInputError:
    """Return the refusal of an object that a framework cannot run."""
    framework = FRAMEWORKS[adapter]
    message = (
        f"names a {type(found).__module__}.{type(found).__qualname__}, not {framework.accepts} of {framework.label}"
    )
    return InvalidInputError([Problem(message, "agent.target")], reason="AGENT_NOT_FOUND")


def made_by_factory(
    found: object, kinds: tuple[type, ...], field: str, remedies: Mapping[str, str] = MappingProxyType({})
) -> object:
    """Return what a function of the user's returns; an object of one of the kinds, or one that is no function, as is.

    Args:
        found: What a target or an option names.
        kinds: What is wanted.
        field: The field of the spec that names it.
        remedies: What to do about missing packages, by their names, where the error of the framework does not say it.

    Raises:
        AgentImportError: The function raised.
        InvalidInputError: It has parameters or is asynchronous, or a package that it needs is missing.
    """
    if isinstance(found, kinds) or not callable(found):
        return found
    name = getattr(found, "__qualname__", type(found).__qualname__)
    wanted = "a function that makes an object takes no argument and is not asynchronous"
    try:
        inspect.signature(found).bind()
    except (TypeError, ValueError):
        raise InvalidInputError(
            [Problem(f"{name} needs arguments: {wanted}", field)], reason="AGENT_NOT_FOUND"
        ) from None
    if inspect.iscoroutinefunction(found):
        raise InvalidInputError([Problem(f"{name} is asynchronous: {wanted}", field)], reason="AGENT_NOT_FOUND")
    try:
        return found()
    except ImportError as problem:
        known = next((package for package in remedies if package in str(problem)), "")
        missing = f"{known}, which is not installed: {remedies[known]}" if known else f"a missing package: {problem}"
        said = f"{name} needs {missing}"
        raise InvalidInputError([Problem(said, field)], reason="FRAMEWORK_MISSING") from None
    except (Exception, SystemExit) as problem:  # noqa: BLE001 - the function is the user's code
        raise AgentImportError(name, user_traceback(problem), field, said="raised an error") from None


def require_framework(framework: Framework) -> None:
    """Check that a framework is installed, in versions that its adapter knows.

    Raises:
        InvalidInputError: It is not; the message has the command that installs it.
    """
    needed, *_ = framework.packages
    try:
        installed = importlib.util.find_spec(framework.module) is not None and _installed_version(needed) is not None
    except ImportError:
        installed = False
    problem = "" if installed else f"{framework.label} is not installed here"
    for package, (least, unknown) in framework.packages.items() if installed else ():
        version = _installed_version(package)
        if version is not None and not _release(least) <= _release(version) < _release(unknown):
            problem = (
                f"{package} {version} is installed, and this version of Assay reads {least} or later, below {unknown}"
            )
            break
    if problem:
        remedy = f"{problem}: {install_hint(framework.extra)}"
        raise InvalidInputError([Problem(remedy, "agent.adapter")], reason="FRAMEWORK_MISSING")


def _installed_version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _release(version: str) -> tuple[int, ...]:
    """Return the numbers with which a version begins: a release candidate counts as its release."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()
