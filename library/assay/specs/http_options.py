"""The http adapter's options: a request template and a mapping of the response."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from assay.errors import Problem
from assay.model.answers.approvals import approvals_to_json
from assay.model.answers.response_expressions import DELTA, RESPONSE_FIELDS, expression_problem
from assay.parsing.fields import Fields
from assay.parsing.names import unknown_name
from assay.specs.headers import read_headers, read_texts
from assay.specs.prompt_template import MAX_FILLED_CHARS, PLACEHOLDER, FilledTooLargeError, as_text
from assay.specs.server_options import HTTP_KEYS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.model.answers.agent_response import AgentRequest

_METHODS = ("POST", "GET", "PUT")
_STREAMS = ("sse", "jsonl")
_DEFAULT_BODY = {"input": "{{input}}"}
_PLAIN_NAMES = ("input", "case_id", "run_id", "history", "messages", "variables", "parameters", "session_id",
                "idempotency_key", "approvals")  # fmt: skip
_MAX_DEPTH = 50


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """How a request is built and a response is read.

    Args:
        method: POST, PUT or GET; a GET has no body.
        headers: Header names to values; the caller replaces `${NAME}` by an environment variable.
        query: Query parameters; texts may hold placeholders.
        body: A JSON tree whose texts may hold placeholders such as {{input}}.
        stream: The form of the reply: "sse" for server-sent events, "jsonl" for JSON lines, empty for a single body.
        response: JMESPath expressions by answer field; a result of `error` turns a 200 into a failure. For a stream
            they apply to the list of its events, except `delta`, which applies to each event. Without any, a reply has
            the field names of an answer.
    """

    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    stream: str = ""
    response: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_options(cls, options: Mapping[str, Any], problems: list[Problem]) -> HttpOptions:
        """Return the options of a spec; append problems to `problems`."""
        Fields.of_agent(options, problems).unknown(HTTP_KEYS, "option of the http adapter")
        method = str(options.get("method", "POST")).upper()
        if method not in _METHODS:
            problems.append(Problem(unknown_name("method", method, _METHODS), "agent.method"))
        if method == "GET" and "body" in options:
            problems.append(Problem("a GET request has no body: use query, or another method", "agent.body"))
        body = options.get("body", None if method == "GET" else _DEFAULT_BODY)
        _check_template(body, "agent.body", problems)
        query = read_texts(options.get("query"), "agent.query", problems)
        _check_template(query, "agent.query", problems)
        headers = read_headers(options.get("headers"), "agent.headers", problems)
        stream = options.get("stream")
        if stream is not None and stream not in _STREAMS:
            problems.append(Problem(unknown_name("stream", stream, _STREAMS), "agent.stream"))
        response = read_texts(options.get("response"), "agent.response", problems)
        if options.get("response") is not None or stream is not None:
            _check_response(response, stream is not None, problems)
        return cls(method, headers, query, body, str(stream or ""), response)


def render(template: Any, request: AgentRequest) -> Any:
    """Return a template with its placeholders filled from a request.

    A text that is exactly one placeholder becomes the value itself, of any type. Inside a longer text, a value other
    than text is written as JSON, and a missing one as nothing. The tree is filled, not concatenated as text, so quotes
    and newlines cannot break it.

    Raises:
        FilledTooLargeError: The result would exceed 4 MiB. The check needs no result of that size.
    """
    return _Filling(request).fill(template)


class _Filling:
    """Fills a template; the total size is counted before texts are joined."""

    def __init__(self, request: AgentRequest) -> None:
        self._request = request
        self._left = MAX_FILLED_CHARS
        self._texts: dict[str, str] = {}
        self._sizes: dict[str, int] = {}

    def fill(self, template: Any) -> Any:
        if isinstance(template, dict):
            return {key: self.fill(value) for key, value in template.items()}
        if isinstance(template, list):
            return [self.fill(value) for value in template]
        if not isinstance(template, str):
            return template
        whole = PLACEHOLDER.fullmatch(template)
        if whole is not None:
            return self._whole(whole[1].strip())
        names = [match[1].strip() for match in PLACEHOLDER.finditer(template)]
        self._charge(len(template) + sum(len(self._text(name)) for name in names))
        return PLACEHOLDER.sub(lambda match: self._text(match[1].strip()), template)

    def _whole(self, name: str) -> Any:
        value = _value(name, self._request)
        if name not in self._sizes:
            self._sizes[name] = len(value) if isinstance(value, str) else len(json.dumps(value, default=str))
        self._charge(self._sizes[name])
        return value

    def _text(self, name: str) -> str:
        if name not in self._texts:
            self._texts[name] = _text(name, self._request)
        return self._texts[name]

    def _charge(self, chars: int) -> None:
        self._left -= chars
        if self._left < 0:
            raise FilledTooLargeError(
                f"the request is larger than {MAX_FILLED_CHARS // 1024**2} MiB once its placeholders are filled in: "
                "use fewer of them, or shorten the case"
            )


def _value(name: str, request: AgentRequest) -> Any:
    head, _, key = name.partition(".")
    if key:
        return getattr(request, head).get(key)
    if head in ("history", "messages"):
        messages = [{"role": message.role, "content": message.content} for message in request.history]
        return messages if head == "history" else [*messages, {"role": "user", "content": request.input}]
    return approvals_to_json(request.approvals) if head == "approvals" else getattr(request, head)


def _text(name: str, request: AgentRequest) -> str:
    head, _, key = name.partition(".")
    return "" if key and key not in getattr(request, head) else as_text(_value(name, request))


def _check_template(template: Any, where: str, problems: list[Problem], depth: int = 0) -> None:
    if depth > _MAX_DEPTH:
        problems.append(Problem(f"is nested more than {_MAX_DEPTH} levels deep", where))
    elif isinstance(template, dict):
        for key, value in template.items():
            _check_template(value, f"{where}.{key}", problems, depth + 1)
    elif isinstance(template, list):
        for index, value in enumerate(template):
            _check_template(value, f"{where}[{index}]", problems, depth + 1)
    elif isinstance(template, str):
        for match in PLACEHOLDER.finditer(template):
            name = match[1].strip()
            head, _, key = name.partition(".")
            if head not in _PLAIN_NAMES or (key and head not in ("variables", "parameters")):
                names = [*_PLAIN_NAMES, "variables.NAME", "parameters.NAME"]
                problems.append(Problem(unknown_name("placeholder", name, names), where))


def _check_response(response: Mapping[str, str], is_stream: bool, problems: list[Problem]) -> None:
    for name, expression in response.items():
        if name == DELTA and not is_stream:
            message = "is about the events of a stream: add stream: sse or stream: jsonl, or remove it"
            problems.append(Problem(message, f"agent.response.{name}"))
        elif name != DELTA and name not in RESPONSE_FIELDS:
            problems.append(Problem(unknown_name("answer field", name, RESPONSE_FIELDS), f"agent.response.{name}"))
        if problem := expression_problem(expression):
            problems.append(Problem(problem, f"agent.response.{name}"))
    if is_stream and not problems and not {"text", DELTA} & set(response):
        message = (
            "must say where the answer's text is: add delta: EXPRESSION for the text that one event adds, "
            "or text: EXPRESSION over the list of all events"
        )
        problems.append(Problem(message, "agent.response"))
    elif "text" not in response and not is_stream and not problems:
        problems.append(Problem("must say where the answer's text is: add text: EXPRESSION", "agent.response"))
