"""A request for a verdict with its derived values: cache key, fingerprint, schema and parameters."""

from __future__ import annotations

import asyncio
import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from assay_judge.verdicts.parser import PARSER, verdict_schema
from assay_judge.verdicts.prompt import build_prompt, template_hash
from assay_judge.verdicts.replies import requested_parameters

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.judging.rubric import Rubric
    from assay_judge.judges import JudgeChoice
    from assay_judge.model import Grading, Prompt
    from assay_judge.providers.verdict_request import JudgeParameters


def canonical_json(data: Mapping[str, Any]) -> str:
    """Return JSON with sorted keys, no spaces and unescaped non-ASCII characters."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def content_key(
    *,
    answer: str | Sequence[str],
    question: str,
    reference: str | None,
    context: Sequence[str] = (),
    history: Sequence[tuple[str, str]] = (),
    criterion: str | None = None,
    model: str,
    params: Mapping[str, Any],
    schema: str,
    template: str,
    sample_index: int = 0,
) -> str:
    """Return the hexadecimal SHA-256 of everything that determines a verdict; no text is normalised.

    Args:
        answer: The answer, or the two compared answers in the order of the prompt.
        question: The question.
        reference: The reference; None for none.
        context: Passages; not hashed if empty.
        history: Role and text of each message before the question; not hashed if empty.
        criterion: A criterion besides the rubric; None is not hashed.
        model: The judge.
        params: The parameters of the judge.
        schema: Identifies the form of the verdict.
        template: Identifies the texts around the material.
        sample_index: Distinguishes repeated verdicts on the same material; 0 is not hashed.
    """
    parts: dict[str, Any] = {
        "answer": answer if isinstance(answer, str) else list(answer),
        "model": model,
        "params": dict(params),
        "question": question,
        "reference": reference,
        "schema": schema,
        "template": template,
    }
    if context:
        parts["context"] = list(context)
    if history:
        parts["history"] = [list(message) for message in history]
    if criterion is not None:
        parts["criterion"] = criterion
    if sample_index:
        parts["sample_index"] = sample_index
    return hashlib.sha256(canonical_json(parts).encode()).hexdigest()


def fingerprint(*, model: str, params: Mapping[str, Any], schema: str, template: str, parser: str) -> str:
    """Return the fingerprint of a judge with its rubric; verdicts with different fingerprints are not comparable."""
    parts = {"model": model, "params": dict(params), "schema": schema, "template": template, "parser": parser}
    return hashlib.sha256(canonical_json(parts).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class PreparedGrading:
    """A request for a verdict, ready for the cache, for calls and for batches.

    Args:
        grading: The request.
        key: The cache key: a hash of everything that determines the verdict.
        fingerprint: Identifies the judge with its rubric.
        schema: JSON schema of the verdict.
        parameters: Parameters of the first call, before the model has refused any of them.
    """

    grading: Grading
    key: str
    fingerprint: str
    schema: Mapping[str, Any]
    parameters: JudgeParameters

    async def prompt(self, problem: str = "") -> Prompt:
        """Return a new prompt with its own verdict_id; the markers in long material are escaped in a thread.

        Args:
            problem: Why the previous reply was invalid, in our own words; empty for the first turn.
        """
        build = partial(build_prompt, self.grading.rubric, self.grading.material, problem=problem)
        return await asyncio.to_thread(build) if self.grading.material.is_long else build()


def prepare_grading(grading: Grading) -> PreparedGrading:
    """Derive key, fingerprint, schema and parameters of a request."""
    rubric, material, judge = grading.rubric, grading.material, grading.judge
    by = _judged_by(rubric, judge)
    key = content_key(
        answer=material.answer if material.second is None else [material.answer, material.second],
        question=material.question,
        reference=material.reference,
        context=material.contexts,
        history=material.history,
        criterion=material.criterion,
        sample_index=grading.sample_index,
        **by.parts,
    )
    return PreparedGrading(grading, key, by.fingerprint, by.schema, requested_parameters(judge))


class _JudgedBy(NamedTuple):
    """A judge with its rubric: the schema of its verdicts, its parts of a key, and its fingerprint; none is changed."""

    schema: Mapping[str, Any]
    parts: Mapping[str, Any]
    fingerprint: str


@lru_cache(maxsize=256)
def _judged_by(rubric: Rubric, judge: JudgeChoice) -> _JudgedBy:
    """Return what all requests to a judge with the same rubric share."""
    schema = verdict_schema(rubric)
    parts: dict[str, Any] = {
        "model": judge.identity,
        "params": judge.params,
        "schema": canonical_json(schema),
        "template": template_hash(rubric),
    }
    return _JudgedBy(schema, parts, fingerprint(**parts, parser=PARSER))
