"""The judge service of a run: the preflight check before anything is paid for, and its account at the end."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import grpc

from assay.errors import AssayError, InvalidInputError, Problem
from assay.judge.v1 import judge_pb2
from assay.parsing.names import unknown_name
from assay.rpc.status import from_rpc_error
from assay_orchestrator.evidence.verdict_wire import judge_model

if TYPE_CHECKING:
    from assay.judge.v1.judge_pb2_grpc import JudgeServiceAsyncStub
    from assay.model.judging_summary import JudgingSummary
    from assay.model.run import JudgeSpec

_TIMEOUT_S = 2.0
_LACKING = ("JUDGE_KEY_MISSING", "JUDGE_NOT_INSTALLED", "JUDGE_PRICE_UNKNOWN")


async def judge_problems(stub: JudgeServiceAsyncStub, judge: JudgeSpec) -> list[Problem]:
    """Return why a judge service will not judge for a run: not allowed, or a missing key, price or rubric.

    A judge service that cannot be reached or is starting yields no problem here; the run will report it.

    Args:
        stub: The judge service.
        judge: The judges of the run; its settings are valid.
    """
    problems: list[Problem] = []
    for place, judge_settings in enumerate(judge.judges):
        request = judge_pb2.GradeRequest(
            rubric="quality", run_id="-", judge=judge_model(judge_settings), batch=judge.batch, validate_only=True
        )
        if judge.spend_cap_usd is not None:
            request.spend_cap_usd = judge.spend_cap_usd
        try:
            await stub.Grade(request, timeout=_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            where = f"judge.jury[{place}]" if judge.others else "judge"
            problems += _problems(from_rpc_error(error), where)
    return problems or await _rubric_problems(stub, judge)


async def _rubric_problems(stub: JudgeServiceAsyncStub, judge: JudgeSpec) -> list[Problem]:
    try:
        known_rubrics = () if judge.rubric_yaml or not judge.rubric else await _rubrics(stub)
    except grpc.aio.AioRpcError:
        return []
    if known_rubrics and judge.rubric not in known_rubrics:
        return [Problem(unknown_name("rubric", judge.rubric, known_rubrics), "judge.rubric")]
    return []


async def _rubrics(stub: JudgeServiceAsyncStub) -> tuple[str, ...]:
    answer = await stub.ListRubrics(judge_pb2.ListRubricsRequest(), timeout=_TIMEOUT_S)
    return tuple(rubric.name for rubric in answer.rubrics if not rubric.compares)


def _problems(problem: Exception, where: str) -> list[Problem]:
    """Return the problems of a refusal that concern a judge, with its place in the spec."""
    if isinstance(problem, AssayError) and problem.reason in _LACKING:
        return [Problem(problem.message, where)]
    if not isinstance(problem, InvalidInputError):
        return []
    return [
        dataclasses.replace(
            entry, field="judge.batch" if entry.field == "batch" else where + entry.field[len("judge") :]
        )
        for entry in problem.problems
        if entry.field == "batch" or entry.field.startswith("judge")
    ]


async def with_account(
    stub: JudgeServiceAsyncStub, judging: JudgingSummary, *, judge: JudgeSpec, run_id: str, scope: str
) -> JudgingSummary:
    """Return the judging summary with the figures of the judge's account; unchanged if the judge cannot be asked.

    Rows know only their own verdicts: calls in flight in a killed process appear in the account alone. At the end of a
    run none of its calls are in flight, so amounts still reserved belong to lost calls too.

    Args:
        stub: The judge service.
        judging: The summary of the verdicts of the run's rows; the run's shards are done.
        judge: The judge, as requests to the judge service name it.
        run_id: The run.
        scope: The name by which the judge knows the team; empty without identities.
    """
    request = judge_pb2.GradeRequest(
        rubric="quality", question="?", answer="!", run_id=run_id, scope=scope, judge=judge_model(judge),
        validate_only=True,
    )  # fmt: skip
    try:
        spending = (await stub.Grade(request, timeout=_TIMEOUT_S)).spending
    except grpc.aio.AioRpcError:
        return judging
    return dataclasses.replace(
        judging,
        account_usd=spending.spent_usd + spending.reserved_usd,
        unknown_usd=spending.unknown_usd + spending.reserved_usd,
    )
