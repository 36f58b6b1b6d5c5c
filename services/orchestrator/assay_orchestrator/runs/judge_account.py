"""What the judge's account of a run says at its end, beside what the verdicts of its rows cost."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import grpc

from assay.v1 import judge_pb2
from assay_orchestrator.evidence.verdict_wire import judge_model

if TYPE_CHECKING:
    from assay.model.judging_summary import JudgingSummary
    from assay.model.run import JudgeSettings
    from assay.v1.judge_pb2_grpc import JudgeServiceAsyncStub

_TIMEOUT_S = 2.0


async def with_account(
    stub: JudgeServiceAsyncStub, judging: JudgingSummary, *, judge: JudgeSettings, run_id: str, scope: str
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
