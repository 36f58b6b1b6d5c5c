"""The judge preflight check: whether the judge would judge for a run, before anything is paid for."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import grpc

from assay.errors import AssayError, InvalidInputError, Problem
from assay.parsing.names import unknown_name
from assay.rpc.status import from_rpc_error
from assay.v1 import judge_pb2
from assay_orchestrator.evidence.verdict_wire import judge_model

if TYPE_CHECKING:
    from assay.model.run import JudgeSettings
    from assay.v1.judge_pb2_grpc import JudgeServiceAsyncStub

_TIMEOUT_S = 2.0
_LACKING = ("JUDGE_KEY_MISSING", "JUDGE_NOT_INSTALLED", "JUDGE_PRICE_UNKNOWN")


async def judge_problems(stub: JudgeServiceAsyncStub, judge: JudgeSettings) -> list[Problem]:
    """Return why a judge service will not judge for a run: it may not, it lacks a key, a price or the rubric.

    One that cannot be reached, or is only starting, has nothing to say yet: then the run finds out.

    Args:
        stub: The judge service.
        judge: Who is to judge; without problems of its own.
    """
    problems: list[Problem] = []
    for place, one in enumerate(judge.judges):
        request = judge_pb2.GradeRequest(
            rubric="quality", run_id="-", judge=judge_model(one), batch=judge.batch, validate_only=True
        )
        if judge.spend_cap_usd is not None:
            request.spend_cap_usd = judge.spend_cap_usd
        try:
            await stub.Grade(request, timeout=_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            where = f"judge.jury[{place}]" if judge.others else "judge"
            problems += _problems(from_rpc_error(error), where)
    return problems or await _rubric_problems(stub, judge)


async def _rubric_problems(stub: JudgeServiceAsyncStub, judge: JudgeSettings) -> list[Problem]:
    try:
        known = () if judge.rubric_yaml or not judge.rubric else await _rubrics(stub)
    except grpc.aio.AioRpcError:
        return []
    if known and judge.rubric not in known:
        return [Problem(unknown_name("rubric", judge.rubric, known), "judge.rubric")]
    return []


async def _rubrics(stub: JudgeServiceAsyncStub) -> tuple[str, ...]:
    answer = await stub.ListRubrics(judge_pb2.ListRubricsRequest(), timeout=_TIMEOUT_S)
    return tuple(rubric.name for rubric in answer.rubrics if not rubric.compares)


def _problems(problem: Exception, where: str) -> list[Problem]:
    """Return what of an error concerns who is asked, with its place in the spec."""
    if isinstance(problem, AssayError) and problem.reason in _LACKING:
        return [Problem(problem.message, where)]
    if not isinstance(problem, InvalidInputError):
        return []
    return [
        dataclasses.replace(each, field="judge.batch" if each.field == "batch" else where + each.field[len("judge") :])
        for each in problem.problems
        if each.field == "batch" or each.field.startswith("judge")
    ]
