"""The options of agents behind a server of HTTP: ADK and A2A, and the names of those of any other."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from assay.errors import Problem
from assay.http.addresses import dial_problem
from assay.parsing.fields import Fields
from assay.specs.headers import read_headers
from assay.specs.urls import has_user, http_parts

if TYPE_CHECKING:
    from collections.abc import Mapping

HTTP_KEYS = ("method", "headers", "query", "body", "stream", "response")
"""The options of the http adapter, which `http_options` reads; that module loads jmespath."""

A2A_KEYS = ("headers",)
"""The options of the a2a adapter."""

ADK_SERVER_KEYS = ("app_name", "user_id", "headers")
"""The options of the adk adapter with a URL as target."""

_ADK_NAME = re.compile(r"[A-Za-z0-9_.@-]{1,200}")
"""Characters that need no escape in a path."""


@dataclass(frozen=True, slots=True)
class A2aOptions:
    """How an A2A agent is called.

    Args:
        headers: Header names to values; the caller replaces `${NAME}` by an environment variable.
    """

    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_options(cls, options: Mapping[str, Any], problems: list[Problem]) -> A2aOptions:
        """Return the options of a spec; append problems to `problems`."""
        Fields.of_agent(options, problems).unknown(A2A_KEYS, "option of the a2a adapter")
        return cls(read_headers(options.get("headers"), "agent.headers", problems))


@dataclass(frozen=True, slots=True)
class AdkServerOptions:
    """How an ADK agent behind `adk api_server` is called.

    Args:
        app_name: The app, named by the agent's folder.
        user_id: The user whose sessions are created.
        headers: Header names to values; the caller replaces `${NAME}` by an environment variable.
    """

    app_name: str
    user_id: str = "assay"
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_options(cls, options: Mapping[str, Any], problems: list[Problem]) -> AdkServerOptions:
        """Return the options of a spec; append problems to `problems`."""
        Fields.of_agent(options, problems).unknown(ADK_SERVER_KEYS, "option of the adk adapter with a URL")
        if options.get("app_name") is None:
            message = "must name the app of the server, which is the folder of its agent: GET /list-apps lists them"
            problems.append(Problem(message, "agent.app_name"))
        names = {"app_name": options.get("app_name") or "", "user_id": options.get("user_id") or "assay"}
        for name in ("app_name", "user_id"):
            value = options.get(name)
            if value is not None and not (isinstance(value, str) and _ADK_NAME.fullmatch(value)):
                message = f"must have letters, digits, '_', '-', '.' and '@', at most 200 together, not {value!r}"
                problems.append(Problem(message, f"agent.{name}"))
        headers = read_headers(options.get("headers"), "agent.headers", problems)
        return cls(str(names["app_name"]), str(names["user_id"]), headers)


def check_base_url(target: str) -> list[Problem]:
    """Return the problem of a target for an adapter that calls paths below a URL."""
    problems = check_url(target)
    if not problems and ("?" in target or "#" in target):
        # The message omits the target, whose query may contain a key.
        message = "must end before its query or fragment, as paths follow it; send a key as a header, in agent.headers"
        problems.append(Problem(message, "agent.target"))
    return problems


def check_url(target: str) -> list[Problem]:
    """Return the problem of a target for an adapter that calls a URL."""
    if has_user(target):
        # Checked before any message that repeats the URL.
        message = (
            "holds a name or password: send it as the header authorization, with ${NAME} of an environment variable"
        )
        return [Problem(message, "agent.target")]
    if http_parts(target) is None:
        return [Problem(f"must be an http or https URL, not {target!r}", "agent.target")]
    problem = dial_problem(target)
    return [Problem(f"{problem}: {target!r}", "agent.target")] if problem else []
