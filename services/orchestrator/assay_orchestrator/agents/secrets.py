"""Environment variables that a spec names: put in where the call is made, taken out of messages and answers."""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from assay.errors import Problem
from assay.runtime.redaction import Redactor
from assay.spec.variables import VARIABLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.model.agent_response import AgentResponse


class Secrets:
    """The variables that one agent's settings name.

    Args:
        allowed: Patterns of names that may be used.
        environ: Where the variables are.
        problems: What is wrong is added here.
    """

    def __init__(self, allowed: Sequence[str], environ: Mapping[str, str], problems: list[Problem]) -> None:
        self._allowed = allowed
        self._environ = environ
        self._problems = problems
        self._values: frozenset[str] = frozenset()
        self._redactor = Redactor()

    def resolve(self, text: str, where: str) -> str:
        """Return the text with its variables filled in; `where` is the field that holds it."""
        return VARIABLE.sub(lambda found: self._value(found[1], where), text)

    def resolve_tree(self, tree: Any, where: str) -> Any:
        """Return a JSON tree with the variables in its texts filled in; keys are left as they are."""
        if isinstance(tree, str):
            return self.resolve(tree, where)
        if isinstance(tree, Mapping):
            return {key: self.resolve_tree(value, f"{where}.{key}") for key, value in tree.items()}
        if isinstance(tree, list):
            return [self.resolve_tree(value, f"{where}[{index}]") for index, value in enumerate(tree)]
        return tree

    def redact(self, text: str) -> str:
        """Return a message without the values, nor the beginning of one where the text was cut off."""
        return self._redactor.redact(text)

    def redact_answer(self, response: AgentResponse) -> AgentResponse:
        """Return an answer without the values: an agent, or a gateway before it, may repeat what it was sent.

        Values of fewer than 8 characters stay in it, other than in its error: they are ordinary words as well.
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
        if type(value) is str:  # no StrEnum
            return self._redactor.redact_long(value)
        if isinstance(value, dict):
            return {self._redactor.redact_long(str(key)): self._redact_tree(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(map(self._redact_tree, value))
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            names = [field.name for field in dataclasses.fields(value)]
            return dataclasses.replace(value, **{name: self._redact_tree(getattr(value, name)) for name in names})
        return value

    def _value(self, name: str, where: str) -> str:
        if not any(fnmatch.fnmatchcase(name, pattern) for pattern in self._allowed):
            self._problems.append(
                Problem(f"${{{name}}} may not be used here: the operator allows names with --agent-env", where)
            )
            return ""
        value = self._environ.get(name, "")
        if not value:
            self._problems.append(
                Problem(f"the environment variable {name} is not set where the orchestrator runs", where)
            )
            return ""
        if value not in self._values:
            self._values |= {value}
            self._redactor = Redactor(self._values)
        return value
