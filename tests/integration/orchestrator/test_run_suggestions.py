"""The run that a mistyped id probably meant, over a real orchestrator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from assay.errors import NotFoundError
from assay.model.case import Case, Turn
from assay_cli.options.shared import with_suggestion

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from assay.client.client import Client
    from assay.model.run import RunSpec


@pytest.fixture
def database_url() -> str:
    """Return no URL: a file will do here."""
    return ""


async def test_a_suggestion_rests_on_the_reason_and_the_ids_that_were_asked_for(
    serve_at: Callable[..., AbstractAsyncContextManager[Client]],
    tmp_path: Path,
    settings_of: Callable[..., RunSpec],
) -> None:
    """A server may word its message as it likes; an error about something else, or without a run id, stays as it is."""
    unknown = NotFoundError("nothing here has this name", reason="RUN_NOT_FOUND")
    other = NotFoundError("there is no run 'r': not the reason", reason="CASE_NOT_FOUND")
    async with serve_at(tmp_path) as client:
        dataset = await client.upload_dataset([Case("c", (Turn("q", references=("a",)),))], name="d")
        run_id = (await client.create_run(settings_of("python", "m:f"), dataset.dataset_id)).run_id
        for asked in ([run_id[:-2]], [run_id, f"{run_id}x"]):
            found = await with_suggestion(client, unknown, asked)
            assert found.message == f"there is no run {asked[-1]!r}: did you mean {run_id!r}?"
            assert found.reason == "RUN_NOT_FOUND"
        for error, asked in ((other, [run_id[:-2]]), (unknown, []), (unknown, [run_id]), (unknown, ["zzz"])):
            assert await with_suggestion(client, error, asked) is error
