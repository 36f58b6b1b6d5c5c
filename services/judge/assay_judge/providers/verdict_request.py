"""Requests for a verdict: prompt, parameters, and the enforcement of the verdict's form."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from assay.model.answers.agent_request import Message
from assay.providers.messages import Request
from assay.providers.parameters import Parameters, says_any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.providers.errors import ProviderStatusError
    from assay_judge.model import Prompt

_FORM_WORDS = ("response_format", "json_schema", "output_config", "output_format", "json_object", "guided")


class Form(StrEnum):
    """How the form of a verdict is enforced; each member is the fallback for services that refuse the one before."""

    SCHEMA = "schema"
    OBJECT = "object"
    WORDS = "words"


@dataclass(frozen=True, slots=True)
class JudgeParameters(Parameters):
    """Parameters of a request for a verdict; a service may refuse some of them.

    Args:
        form: How the form of the reply is enforced.
    """

    form: Form = Form.SCHEMA

    def without_refused(self, refusal: ProviderStatusError, request_text: str) -> JudgeParameters | None:
        """Return weaker parameters if a refusal says that one of these is unknown, else None."""
        # By name: slots make a dataclass a new class, and super() without arguments would refer to the old one.
        return Parameters.without_refused(self, refusal, request_text) or self._with_next_form(refusal, request_text)

    def changes_from(self, wanted: JudgeParameters) -> tuple[str, ...]:
        """Return the wanted parameters that were dropped or weakened because the model refused them."""
        changes = {"temperature": self.temperature != wanted.temperature, "schema": self.form is not wanted.form}
        return tuple(name for name, changed in changes.items() if changed)

    def _with_next_form(self, refusal: ProviderStatusError, request_text: str) -> JudgeParameters | None:
        if not refusal.may_refuse_field or self.form is Form.WORDS:
            return None
        named = refusal.parameter.lower()
        is_form = any(word in named for word in _FORM_WORDS)
        if not is_form and (named or not says_any(refusal, _FORM_WORDS, request_text)):
            return None
        forms = list(Form)
        return dataclasses.replace(self, form=forms[forms.index(self.form) + 1])


def openai_request(model: str, prompt: Prompt, schema: Mapping[str, Any], parameters: JudgeParameters) -> Request:
    """Return a request for a verdict in OpenAI's protocol."""
    form: dict[str, Any] = {}
    if parameters.form is Form.SCHEMA:
        named = {"name": "verdict", "strict": True, "schema": schema}
        form = {"response_format": {"type": "json_schema", "json_schema": named}}
    elif parameters.form is Form.OBJECT:
        form = {"response_format": {"type": "json_object"}}
    return _request(model, prompt, parameters, form)


def anthropic_request(model: str, prompt: Prompt, schema: Mapping[str, Any], parameters: JudgeParameters) -> Request:
    """Return a request for a verdict in Anthropic's protocol."""
    form: dict[str, Any] = {}
    if parameters.form is Form.SCHEMA:
        form = {"output_config": {"format": {"type": "json_schema", "schema": schema}}}
    return _request(model, prompt, parameters, form)


def _request(model: str, prompt: Prompt, parameters: JudgeParameters, form: Mapping[str, Any]) -> Request:
    return Request(
        model,
        (Message("user", prompt.user),),
        parameters,
        shared_system=prompt.system,  # shared by all calls with the rubric
        system=prompt.call,
        extra=form,
    )
