"""The resources of a judge process: opened in order, closed in reverse."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from assay.errors import InvalidInputError, Problem
from assay.judging.rubric_file import read_rubric
from assay.process.secret_stores import open_secrets
from assay_judge.batches.batch_gauges import BatchGauges
from assay_judge.batches.dispatcher import BatchDispatcher
from assay_judge.batches.store import BatchStore
from assay_judge.calls.prices import PriceTable
from assay_judge.calls.provider_registry import ProviderRegistry, read_limits
from assay_judge.clock import SYSTEM_CLOCK
from assay_judge.grading.grader import Grader
from assay_judge.service import JudgeService
from assay_judge.state.claims import Claims
from assay_judge.state.ledger import Ledger
from assay_judge.state.store import JudgeStore
from assay_judge.verdicts.cache import VerdictCache
from assay_judge.verdicts.recording import Recording
from assay_judge.verdicts.rubric_registry import BUILT_IN, RubricRegistry

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Mapping, Sequence

    from assay.judging.rubric import Rubric
    from assay_judge.clock import Clock
    from assay_judge.settings import Settings


@asynccontextmanager
async def open_service(
    settings: Settings, environment: Mapping[str, str], stopping: asyncio.Event, clock: Clock = SYSTEM_CLOCK
) -> AsyncIterator[JudgeService]:
    """Open a judge service.

    Args:
        settings: The settings of the process.
        environment: The environment variables with the keys.
        stopping: Set when the process stops.
        clock: The clock of batches.

    Raises:
        InvalidInputError: A file that the settings name is invalid; lists all its problems.
        SetupError: The package or the key of the server's own judge is missing.
        StorageError: The database cannot be used.
    """
    rubrics = RubricRegistry(read_rubrics(settings.rubrics))
    prices, limits = (
        PriceTable(settings.prices, is_capped=settings.spend_cap_usd is not None),
        read_limits(settings.limits),
    )
    recording = Recording.read(settings.replay) if settings.replay else None
    async with AsyncExitStack() as stack:
        store = await JudgeStore.open(
            settings.state_dir,
            settings.database_url,
            max_verdicts=settings.cache_entries,
            patience_s=settings.database_patience_s,
        )
        stack.push_async_callback(store.aclose)
        registry = ProviderRegistry(
            environment,
            prices,
            secrets=open_secrets(settings.secrets, settings.secret_variables, environment),
            limits=limits,
            retry_policy=settings.retry_policy,
            max_concurrency=settings.max_concurrency,
            egress_of=settings.egress_of,
        )
        stack.push_async_callback(registry.aclose)
        ledger = Ledger(store)
        cache = VerdictCache(store, is_enabled=settings.cache, record_to=settings.record)
        orders = BatchStore(store, settings.batch_rules.lease_s)
        batches = BatchDispatcher(
            orders, registry, ledger, cache, rules=settings.batch_rules, clock=clock, stopping=stopping
        )
        # Within a single process, single flight does the work of claims.
        claims = Claims(store.database) if settings.cache and store.is_shared else None
        limit = settings.queue_limit
        grader = Grader(registry, cache, ledger, batches, recording=recording, claims=claims, queue_limit=limit)
        # Closed in reverse: batches first, whose settlements still need the ledger, the clients and the store.
        stack.push_async_callback(grader.aclose)
        stack.push_async_callback(batches.aclose)
        if settings.judge.provider not in ("none", "replay"):
            await registry.client(settings.judge)  # a missing key fails here, not at the first request
        await batches.start()
        if settings.metrics_listen:
            await stack.enter_async_context(BatchGauges(orders))
        yield JudgeService(
            grader=grader,
            rubrics=rubrics,
            store=store,
            ledger=ledger,
            batches=batches,
            settings=settings,
            stopping=stopping,
        )


def read_rubrics(files: Sequence[str]) -> Mapping[str, Rubric]:
    """Return the rubrics shipped with Assay and those of the given files.

    Raises:
        InvalidInputError: A file is invalid; lists all problems of all files.
    """
    rubrics = dict(BUILT_IN)
    problems: list[Problem] = []
    for path in map(Path, files):
        try:
            rubric = read_rubric(path.read_text(encoding="utf-8-sig"), file=str(path))
        except (OSError, UnicodeDecodeError) as error:
            problems.append(Problem(f"cannot be read: {error}", file=str(path)))
        except InvalidInputError as error:
            problems += error.problems
        else:
            if rubric.name in rubrics:
                problems.append(Problem(f"there is a rubric {rubric.name!r} already", "name", str(path)))
            rubrics[rubric.name] = rubric
    if problems:
        raise InvalidInputError(problems, reason="INVALID_SETTINGS")
    return rubrics
