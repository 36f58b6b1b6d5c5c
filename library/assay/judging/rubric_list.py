"""The rubrics of a judge service."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.judge.v1 import judge_pb2

if TYPE_CHECKING:
    from assay.judge.v1.judge_pb2_grpc import JudgeServiceAsyncStub


async def list_rubrics(stub: JudgeServiceAsyncStub, timeout_s: float | None = None) -> list[judge_pb2.Rubric]:
    """Return all rubrics of a judge service.

    Args:
        stub: The service.
        timeout_s: The limit of each page.

    Raises:
        AioRpcError: A page cannot be read.
    """
    rubrics: list[judge_pb2.Rubric] = []
    request = judge_pb2.ListRubricsRequest()
    while True:
        page = await stub.ListRubrics(request, timeout=timeout_s)
        rubrics += page.rubrics
        if not page.next_page_token:
            return rubrics
        request.page_token = page.next_page_token
