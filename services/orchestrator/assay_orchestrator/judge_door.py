"""Whether a judge would judge for a run: asked before the run begins, without anybody being paid."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc

from assay.errors import InvalidInputError, Problem
from assay.names import unknown_name
from assay.rpc.status import from_rpc_error
from assay.v1 import judge_pb2
from assay_orchestrator.verdicts import judge_model

if TYPE_CHECKING:
    from assay.results import JudgeSettings
    from assay.v1.judge_pb2_grpc import JudgeServiceAsyncStub

__all__ = ["judge_problems"]

_TIMEOUT_S = 2.0


async def judge_problems(stub: JudgeServiceAsyncStub, judge: JudgeSettings) -> list[Problem]:
    """Return why a judge service will not judge for a run: what it may not be asked, a rubric that it does not know.

    One that cannot be reached, or is only starting, has nothing to say yet: then the run finds out.

    Args:
        stub: The judge service.
        judge: Who is to judge; without problems of its own.
    """
    # An answer that says nothing has its verdict by rule: whoever may be asked says so, and calls nobody.
    request = judge_pb2.GradeRequest(rubric="quality", question="-", run_id="-", judge=judge_model(judge))
    try:
        await stub.Grade(request, timeout=_TIMEOUT_S)
        known = () if judge.rubric_yaml or not judge.rubric else await _rubrics(stub)
    except grpc.aio.AioRpcError as error:
        problem = from_rpc_error(error)
        return [each for each in _problems(problem) if each.field.startswith("judge")]
    if known and judge.rubric not in known:
        return [Problem(unknown_name("rubric", judge.rubric, known), "judge.rubric")]
    return []


async def _rubrics(stub: JudgeServiceAsyncStub) -> tuple[str, ...]:
    answer = await stub.ListRubrics(judge_pb2.ListRubricsRequest(), timeout=_TIMEOUT_S)
    return tuple(rubric.name for rubric in answer.rubrics if not rubric.compares)


def _problems(problem: Exception) -> list[Problem]:
    return problem.problems if isinstance(problem, InvalidInputError) else []
