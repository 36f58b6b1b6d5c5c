"""A request for a verdict with everything that its verdict rests on, derived once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from assay_judge.verdicts.cache_key import canonical_json, content_key, fingerprint
from assay_judge.verdicts.parser import PARSER, verdict_schema
from assay_judge.verdicts.prompt import build_prompt, template_hash
from assay_judge.verdicts.replies import requested_parameters

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.judging.rubric import Rubric
    from assay_judge.model import Grading, Prompt
    from assay_judge.providers.verdict_request import JudgeParameters


@dataclass(frozen=True, slots=True)
class PreparedGrading:
    """A request for a verdict, ready for the cache, for calls and for batches.

    Args:
        grading: The request.
        key: The cache key: a hash of everything that the verdict rests on.
        fingerprint: Identifies the judge with its rubric.
        schema: JSON schema of the verdict.
        parameters: JudgeParameters of the first call, before the judge has refused any of them.
    """

    grading: Grading
    key: str
    fingerprint: str
    schema: Mapping[str, Any]
    parameters: JudgeParameters

    async def prompt(self, problem: str = "") -> Prompt:
        """Return a new prompt, with a verdict_id of its own; long material is disarmed in a thread.

        Args:
            problem: Why the previous reply was not accepted, in our own words; empty for the first turn.
        """
        build = partial(build_prompt, self.grading.rubric, self.grading.material, problem=problem)
        return await asyncio.to_thread(build) if self.grading.material.is_long else build()


def prepare_grading(grading: Grading) -> PreparedGrading:
    """Derive key, fingerprint, schema and parameters of a request."""
    rubric, material, judge = grading.rubric, grading.material, grading.judge
    schema, schema_text = _schema(rubric)
    by: dict[str, Any] = {
        "model": judge.identity,
        "params": judge.params,
        "schema": schema_text,
        "template": template_hash(rubric),
    }
    key = content_key(
        answer=material.answer if material.second is None else [material.answer, material.second],
        question=material.question,
        reference=material.reference,
        context=material.contexts,
        history=material.history,
        criterion=material.criterion,
        sample_index=grading.sample_index,
        **by,
    )
    return PreparedGrading(grading, key, fingerprint(**by, parser=PARSER), schema, requested_parameters(judge))


@lru_cache(maxsize=256)
def _schema(rubric: Rubric) -> tuple[Mapping[str, Any], str]:
    """Return a rubric's schema, which is never changed, and its canonical text."""
    schema = verdict_schema(rubric)
    return schema, canonical_json(schema)
