"""A request for a verdict: the prompt, and how the form of the verdict is enforced."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from assay.model.agent_request import Message
from assay.providers.messages import Request
from assay.providers.parameters import Parameters

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.providers.errors import ProviderStatusError
    from assay_judge.model import Prompt

_FORM_WORDS = ("response_format", "json_schema", "output_config", "output_format", "json_object", "guided")


class Form(StrEnum):
    """How a model is made to answer in the form of a verdict; each is for services that refuse the one before."""

    SCHEMA = "schema"
    OBJECT = "object"
    WORDS = "words"


@dataclass(frozen=True, slots=True)
class JudgeParameters(Parameters):
    """Parameters of a request for a verdict, some of which a service may refuse.

    Args:
        form: How the reply's form is enforced.
    """

    form: Form = Form.SCHEMA

    def without_refused(self, refusal: ProviderStatusError) -> JudgeParameters | None:
        """Return other parameters where a refusal says that one of these is unknown, else None."""
        # By name: a dataclass with slots is another class than the one that super() without arguments refers to.
        return Parameters.without_refused(self, refusal) or self._with_next_form(refusal)

    def _with_next_form(self, refusal: ProviderStatusError) -> JudgeParameters | None:
        said = f"{refusal.parameter} {refusal.message}".lower()
        if not refusal.may_refuse_field or self.form is Form.WORDS or not any(word in said for word in _FORM_WORDS):
            return None
        forms = list(Form)
        return dataclasses.replace(self, form=forms[forms.index(self.form) + 1])


def openai_request(model: str, prompt: Prompt, schema: Mapping[str, Any], parameters: JudgeParameters) -> Request:
    """Return a request for a verdict to a service of OpenAI's protocol."""
    form: dict[str, Any] = {}
    if parameters.form is Form.SCHEMA:
        named = {"name": "verdict", "strict": True, "schema": schema}
        form = {"response_format": {"type": "json_schema", "json_schema": named}}
    elif parameters.form is Form.OBJECT:
        form = {"response_format": {"type": "json_object"}}
    return _request(model, prompt, parameters, form)


def anthropic_request(model: str, prompt: Prompt, schema: Mapping[str, Any], parameters: JudgeParameters) -> Request:
    """Return a request for a verdict to a service of Anthropic's protocol."""
    form: dict[str, Any] = {}
    if parameters.form is Form.SCHEMA:
        form = {"output_config": {"format": {"type": "json_schema", "schema": schema}}}
    return _request(model, prompt, parameters, form)


def _request(model: str, prompt: Prompt, parameters: JudgeParameters, form: Mapping[str, Any]) -> Request:
    return Request(
        model,
        (Message("user", prompt.user),),
        parameters,
        shared_system=prompt.system,  # the same for all calls by the rubric
        system=prompt.call,
        extra=form,
    )
