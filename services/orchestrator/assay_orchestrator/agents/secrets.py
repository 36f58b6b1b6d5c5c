"""Variables and secrets that a spec names: filled in for calls, removed from messages and answers."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from assay.errors import InvalidInputError, Problem
from assay.parsing.secret_references import REFERENCE, SecretReference, form_problem, parse_path
from assay.process.logs import keep_out_of_logs
from assay.process.redaction import REDACTED, Redactor, is_secret_name
from assay.process.secret_stores import REREAD_S
from assay.specs.variables import NAMED, VARIABLE, named_texts
from assay_orchestrator.agents.destinations import agent_address

if TYPE_CHECKING:
    from collections.abc import Callable

    from assay.http.addresses import Address
    from assay.model.answers.agent_response import AgentResponse
    from assay.model.run import AgentSpec
    from assay_orchestrator.agents.access import AgentAccess

SECRET_MISSING = "SecretMissing"  # noqa: S105 - the name of an error
"""The error type of a row whose agent cannot be called because a secret no longer exists."""


class Secrets:
    """The variables and secrets that one agent's settings name.

    Args:
        access: What may be named, and the store of values.
        called: The address that receives them.
        problems: Receives the problems.
        monotonic_s: A clock in seconds.
    """

    def __init__(
        self,
        access: AgentAccess,
        called: Address,
        problems: list[Problem],
        *,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._access = access
        self._called = called
        self._problems = problems
        self._monotonic_s = monotonic_s
        self._read: dict[SecretReference, str] = {}
        self._read_s = monotonic_s()
        self._is_incomplete = False
        self._values: frozenset[str] = frozenset()
        self._secrets: frozenset[str] = frozenset()
        self._redactor = Redactor()

    def resolve(self, text: str, where: str) -> str:
        """Return the text with its variables and secrets filled in; `where` is its field."""
        return NAMED.sub(
            lambda match: self._variable(match[1], where) if match[1] else self._secret(match[2] or match[3], where),
            text,
        )

    def refill(self, fill: Callable[[], None]) -> None:
        """Fill in an agent's settings again if a secret has changed; secrets are read every 5 s.

        Args:
            fill: Calls `resolve` for all of them.

        Raises:
            InvalidInputError: A secret no longer exists.
        """
        if not self._is_incomplete:
            if not self._read or self._monotonic_s() - self._read_s < REREAD_S:
                return
            self._read_s = self._monotonic_s()
            if all(self._access.read_secret(reference)[0] == value for reference, value in self._read.items()):
                return
        self._problems.clear()
        fill()
        self._is_incomplete = bool(self._problems)
        if self._problems:
            raise InvalidInputError(self._problems)

    def resolve_tree(self, tree: Any, where: str) -> Any:
        """Return a JSON tree with the variables in its texts filled in; keys stay unchanged."""
        if isinstance(tree, str):
            return self.resolve(tree, where)
        if isinstance(tree, Mapping):
            return {key: self.resolve_tree(value, f"{where}.{key}") for key, value in tree.items()}
        if isinstance(tree, list):
            return [self.resolve_tree(value, f"{where}[{index}]") for index, value in enumerate(tree)]
        return tree

    def redact(self, text: str) -> str:
        """Return a message without the values, or the beginning of one at a cut-off end."""
        return self._redactor.redact(text)

    def redact_answer(self, response: AgentResponse) -> AgentResponse:
        """Return an answer without the values: an agent, or a gateway before it, may repeat what it received.

        A part of a secret at either end of a text is removed too, because an answer may arrive in pieces. Values of
        fewer than 8 characters are removed from its error only: they may be ordinary words.
        """
        if not self._values:
            return response
        redacted: AgentResponse = self._redact_tree(dataclasses.replace(response, error=None))
        error = response.error
        if error is not None:
            error = dataclasses.replace(
                error,
                message=self.redact(error.message),
                type=self.redact(error.type),
                traceback=self.redact(error.traceback),
            )
        return dataclasses.replace(redacted, error=error)

    def _redact_tree(self, value: Any) -> Any:
        if type(value) is str:  # not a StrEnum
            return self._redactor.redact_long(value)
        if isinstance(value, dict):
            return {self._redactor.redact_long(str(key)): self._redact_tree(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(map(self._redact_tree, value))
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return dataclasses.replace(
                value, **{field.name: self._redact_field(value, field) for field in dataclasses.fields(value)}
            )
        return REDACTED if self._is_secret_number(value) else value

    def _redact_field(self, holder: Any, declared: dataclasses.Field[Any]) -> Any:
        value = getattr(holder, declared.name)
        if declared.default is None and self._is_secret_number(value):
            return None  # a field for numbers contains no text
        return self._redact_tree(value)

    def _is_secret_number(self, value: Any) -> bool:
        """Return whether the digits of a number contain a secret; large numbers read as floats are truncated."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        try:
            texts = {str(value), format(value, "f")} if isinstance(value, float) else {str(value)}
        except ValueError:  # Python writes no integer of more than 4,300 digits
            return True
        return any(self._redactor.redact_line(text) != text for text in texts)

    def _variable(self, name: str, where: str) -> str:
        problem = self._access.variable_problem(name, self._called)
        value = "" if problem else self._access.variables.get(name, "")
        if not value:
            refusal = problem or f"the environment variable {name} is not set where the orchestrator runs"
            self._problems.append(Problem(refusal, where))
            return ""
        if value not in self._values:
            self._values |= {value}
            self._note({value} if is_secret_name(name) else frozenset())
        return value

    def _secret(self, path: str, where: str) -> str:
        reference = parse_path(path)
        if reference is None:
            self._problems.append(Problem(form_problem(path), where))
            return ""
        if problem := self._access.secret_problem(reference, self._called):
            self._problems.append(Problem(problem, where))
            return ""
        value, problem = self._access.read_secret(reference)
        if problem:
            self._problems.append(Problem(problem, where))
            return ""
        self._read[reference] = value
        if value not in self._values:
            self._values |= {value}
            self._note({value})
        return value

    def _note(self, secrets: frozenset[str] | set[str]) -> None:
        # Earlier values stay known: an answer may contain the value with which it was requested.
        self._secrets |= secrets
        self._redactor = Redactor(self._values, self._secrets)
        keep_out_of_logs(self._values, self._secrets)


def binding_problems(settings: AgentSpec, access: AgentAccess) -> list[Problem]:
    """Return which variables and secrets may not be sent to an agent; the calling process checks whether they exist.

    Args:
        settings: Checked settings.
        access: What may be named.
    """
    called = agent_address(settings)
    # A process that does not call agents may not know which variables the calling processes may send.
    variables = [
        Problem(problem, where)
        for text, where in named_texts(settings)
        for match in VARIABLE.finditer(text)
        if access.env and (problem := access.variable_problem(match[1], called))
    ]
    return variables + [
        Problem(problem, where)
        for text, where in named_texts(settings)
        for match in REFERENCE.finditer(text)
        if (reference := parse_path(match[1] or match[2] or "")) is not None
        and (problem := access.secret_problem(reference, called))
    ]
