"""Judges of runs with one model, from the fields of both."""

from __future__ import annotations

import dataclasses
from typing import Any

from assay.model.run import JudgeModel, JudgeSpec

_OF_MODEL = frozenset(field.name for field in dataclasses.fields(JudgeModel))


def judge_of(provider: str, model: str = "", base_url: str = "", **fields: Any) -> JudgeSpec:
    """Return a judge of one model; each field belongs to the model or to the judge."""
    of_model = {name: value for name, value in fields.items() if name in _OF_MODEL}
    own = {name: value for name, value in fields.items() if name not in _OF_MODEL}
    return JudgeSpec(members=(JudgeModel(provider, model, base_url, **of_model),), **own)
