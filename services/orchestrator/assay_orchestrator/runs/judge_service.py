"""The judge service of a run: the preflight check before anything is paid for, and its account at the end."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import grpc

from assay.errors import AssayError, InvalidInputError, Problem
from assay.identity.quotas import NANO
from assay.judge.v1 import judge_pb2
from assay.judging.rubric_list import list_rubrics
from assay.metrics import METRICS
from assay.parsing.names import unknown_name
from assay.rpc.status import from_rpc_error
from assay.specs.judging import JudgePlace
from assay.wire.judging import JUDGE_MODEL

if TYPE_CHECKING:
    from assay.judge.v1.judge_pb2_grpc import JudgeServiceAsyncStub
    from assay.model.judging_summary import JudgingSummary
    from assay.model.run import JudgeModel, RunSpec

_TIMEOUT_S = 2.0
_LACKING = ("JUDGE_KEY_MISSING", "JUDGE_NOT_INSTALLED", "JUDGE_PRICE_UNKNOWN")


async def judge_problems(stub: JudgeServiceAsyncStub, spec: RunSpec) -> list[Problem]:
    """Return why a judge service will not judge for a run: not allowed, or a missing key, price or rubric.

    A judge service that cannot be reached or is starting yields no problem here; the run will report it. Neither does a
    judge that no metric uses.

    Args:
        stub: The judge service.
        spec: The valid settings of the run.
    """
    used = [spec.judge_of(metric) for metric in spec.metrics if METRICS[metric.kind].info.needs_judge]
    problems: list[Problem] = []
    for index, judge in enumerate(spec.judges):
        if judge not in used or judge.recorded_file:
            continue
        place = JudgePlace.in_request(judge, index)
        for member, where in zip(judge.members, place.members, strict=True):
            request = judge_pb2.GradeRequest(
                rubric="quality", run_id="-", judge=JUDGE_MODEL.to_wire(member), batch=judge.batch, validate_only=True,
                spend_cap_nano_usd=spec.spend_cap_nano_usd,
            )  # fmt: skip
            try:
                await stub.Grade(request, timeout=_TIMEOUT_S)
            except grpc.aio.AioRpcError as error:
                problems += _problems(from_rpc_error(error), where, f"{place.judge}.batch")
    return problems or await _rubric_problems(stub, spec)


async def _rubric_problems(stub: JudgeServiceAsyncStub, spec: RunSpec) -> list[Problem]:
    named = {
        index: metric.rubric
        for index, metric in enumerate(spec.metrics)
        if metric.rubric and not metric.rubric_yaml
        and (judge := spec.judge_of(metric)) is not None and not judge.recorded_file
    }  # fmt: skip
    try:
        known_rubrics = await _rubrics(stub) if named else ()
    except grpc.aio.AioRpcError:
        return []
    return [
        Problem(unknown_name("rubric", rubric, known_rubrics), f"metrics[{index}].rubric")
        for index, rubric in named.items()
        if rubric not in known_rubrics
    ]


async def _rubrics(stub: JudgeServiceAsyncStub) -> tuple[str, ...]:
    return tuple(rubric.name for rubric in await list_rubrics(stub, _TIMEOUT_S) if not rubric.compares)


def _problems(problem: Exception, where: str, batch: str) -> list[Problem]:
    """Return the problems of a refusal that concern a judge.

    Args:
        problem: The refusal.
        where: The path of the judge's member in the request.
        batch: The path of the judge's use of batches.
    """
    if isinstance(problem, AssayError) and problem.reason in _LACKING:
        return [Problem(problem.message, where)]
    if not isinstance(problem, InvalidInputError):
        return []
    return [
        dataclasses.replace(entry, field=batch if entry.field == "batch" else where + entry.field[len("judge") :])
        for entry in problem.problems
        if entry.field == "batch" or entry.field.startswith("judge")
    ]


async def with_account(
    stub: JudgeServiceAsyncStub, judging: JudgingSummary, *, judge: JudgeModel, run_id: str, scope: str
) -> JudgingSummary:
    """Return the judging summary with the figures of the judge's account; unchanged if the judge cannot be asked.

    Rows know only their own verdicts: calls in flight in a killed process appear in the account alone. At the end of a
    run none of its calls are in flight, so amounts still reserved belong to lost calls too.

    Args:
        stub: The judge service.
        judging: The summary of the verdicts of the run's rows; the run's shards are done.
        judge: A model of the run, as requests to the judge service name it.
        run_id: The run.
        scope: The name by which the judge knows the team; empty without identities.
    """
    request = judge_pb2.GradeRequest(
        rubric="quality", question="?", answer="!", run_id=run_id, scope=scope, judge=JUDGE_MODEL.to_wire(judge),
        validate_only=True,
    )  # fmt: skip
    try:
        spending = (await stub.Grade(request, timeout=_TIMEOUT_S)).spending
    except grpc.aio.AioRpcError:
        return judging
    return dataclasses.replace(
        judging,
        account_usd=(spending.spent_nano_usd + spending.reserved_nano_usd) / NANO,
        unknown_usd=(spending.unknown_nano_usd + spending.reserved_nano_usd) / NANO,
    )
