"""Opening a framework's agent: check the framework, load the target object, load the options."""

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
    from assay.model.run import AgentSpec


def open_framework_agent(
    agent: AgentSpec, folder: Path, *, has_lifespan: bool = False
) -> Callable[..., Awaitable[AgentResponse]]:
    """Return a function that asks a framework's agent.

    The framework's module provides `connect(found, options)`. From the target's object and the options, with option
    targets already loaded, it returns the asking function, or raises InvalidInputError for an object that the framework
    cannot run. It may provide `prepare()`, which runs before the user's code is imported. If the function has a method
    `open`, that is called before each question, and `aclose` at the end. The function is called with the request and,
    if the agent has a lifespan, with the opened resource; the option `lifespan` is then True.

    Args:
        agent: Checked settings, whose adapter is one of `FRAMEWORKS`.
        folder: The spec's folder, which code is relative to.
        has_lifespan: Whether the agent has a lifespan.

    Raises:
        AgentImportError: The user's module raised.
        InvalidInputError: The framework is missing or has another version, or the object does not exist.
    """
    framework = FRAMEWORKS[agent.adapter]
    require_framework(framework)
    module = importlib.import_module(f"assay.agent_host.frameworks.{agent.adapter}")
    if hasattr(module, "prepare"):
        module.prepare()
    target = load_object(agent.target, folder, "object")
    options: dict[str, Any] = {
        name: load_object(value, folder, "object", f"agent.{name}")
        if framework.options[name] is OptionKind.OBJECT
        else value
        for name, value in agent.options.items()
    }
    if has_lifespan:
        options["lifespan"] = True
    return module.connect(target, options)  # type: ignore[no-any-return]  # as every module of this package does


def wrong_object(target: object, adapter: str) -> InvalidInputError:
    """Return the error for an object that a framework cannot run."""
    framework = FRAMEWORKS[adapter]
    message = (
        f"names a {type(target).__module__}.{type(target).__qualname__}, not {framework.accepts} of {framework.label}"
    )
    return InvalidInputError([Problem(message, "agent.target")], reason="AGENT_NOT_FOUND")


def made_by_factory(
    target: object, kinds: tuple[type, ...], field: str, remedies: Mapping[str, str] = MappingProxyType({})
) -> object:
    """Return the result of a user's factory function; an object of the right type, or not a function, is unchanged.

    Args:
        target: The object of a target or an option.
        kinds: The expected types.
        field: The field of the spec that names it.
        remedies: Advice for missing packages, by name, if the framework's error has none.

    Raises:
        AgentImportError: The function raised.
        InvalidInputError: It has parameters or is asynchronous, or a required package is missing.
    """
    if isinstance(target, kinds) or not callable(target):
        return target
    name = getattr(target, "__qualname__", type(target).__qualname__)
    rule = "a function that makes an object takes no argument and is not asynchronous"
    try:
        inspect.signature(target).bind()
    except (TypeError, ValueError):
        raise InvalidInputError([Problem(f"{name} needs arguments: {rule}", field)], reason="AGENT_NOT_FOUND") from None
    if inspect.iscoroutinefunction(target):
        raise InvalidInputError([Problem(f"{name} is asynchronous: {rule}", field)], reason="AGENT_NOT_FOUND")
    try:
        return target()
    except ImportError as problem:
        known = next((package for package in remedies if package in str(problem)), "")
        missing = f"{known}, which is not installed: {remedies[known]}" if known else f"a missing package: {problem}"
        message = f"{name} needs {missing}"
        raise InvalidInputError([Problem(message, field)], reason="FRAMEWORK_MISSING") from None
    except (Exception, SystemExit) as problem:  # noqa: BLE001 - the function is the user's code
        raise AgentImportError(name, user_traceback(problem), field, failure="raised an error") from None


def require_framework(framework: Framework) -> None:
    """Check that a framework is installed in a supported version.

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
    """Return the leading numbers of a version: a release candidate counts as its release."""
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, match[0].split("."))) if match else ()
