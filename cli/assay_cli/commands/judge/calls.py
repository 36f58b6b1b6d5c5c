"""Calls to a judge service for many answers or pairs, and their bill."""

from __future__ import annotations

import asyncio
import math
import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from assay.judge.v1 import judge_pb2 as pb
from assay.judging.rubric_list import list_rubrics
from assay.rpc.channel import read_stream
from assay.rpc.status import from_status, translated
from assay.statistics.pairs import PairJudgement
from assay.v1 import judge_spec_pb2
from assay.wire.judging import PRICE
from assay_cli.commands.judge.rubrics import AskedRubric, known_rubric, listed_rubric

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from assay_cli.commands.judge.access import JudgeAccess, JudgeName
    from assay_cli.commands.judge.labels import Item

_PAIR_TIMEOUT_S = 600.0
_CHOICES = {pb.PAIR_CHOICE_FIRST: "first", pb.PAIR_CHOICE_SECOND: "second", pb.PAIR_CHOICE_TIE: "tie"}


@dataclass(slots=True)
class Bill:
    """Counts and cost of verdicts.

    Args:
        verdicts: All verdicts.
        asked: Verdicts that called the judge.
        cached: Verdicts from the cache.
        by_rule: Verdicts by rule, without a call.
        calls: Calls of the judge, retries included.
        tokens: Input and output tokens.
        unpriced: Called verdicts without a known cost.
        failed: Counts of missing or invalid verdicts, by reason.
        unavailable: Those among them without any verdict.
        messages: A sentence for each reason.
        costs: Cost of each called verdict, in US dollars.
    """

    verdicts: int = 0
    asked: int = 0
    cached: int = 0
    by_rule: int = 0
    calls: int = 0
    tokens: int = 0
    unpriced: int = 0
    unavailable: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    messages: dict[str, str] = field(default_factory=dict)
    costs: list[float] = field(default_factory=list)

    def take(self, verdict: pb.Verdict) -> None:
        """Count a verdict."""
        self.verdicts += 1
        self.cached += verdict.cached
        self.by_rule += verdict.by_rule
        self.calls += verdict.call_count
        if verdict.call_count:
            self.asked += 1
            self.tokens += verdict.usage.input_tokens + verdict.usage.output_tokens
            if verdict.usage.HasField("cost_usd"):
                self.costs.append(verdict.usage.cost_usd)
            else:
                self.unpriced += 1
        if verdict.status != pb.VERDICT_STATUS_VALID:
            self.failed[verdict.reason] += 1
            self.unavailable += verdict.status != pb.VERDICT_STATUS_INVALID
            self.messages.setdefault(verdict.reason, verdict.message)

    @property
    def cost_usd(self) -> float | None:
        """Total cost; None if any part has no price."""
        return None if self.unpriced else math.fsum(self.costs)

    def sentence(self) -> str:
        """Return the bill as a sentence."""
        parts = [f"{self.verdicts} verdicts", f"{self.calls} calls", f"{self.tokens:,} tokens"]
        parts += [
            f"{count} {origin}" for origin, count in (("cached", self.cached), ("by rule", self.by_rule)) if count
        ]
        total = math.fsum(self.costs)
        cost = f"${total:.4f}" if not self.unpriced else "unknown (no price for this model: give --prices)"
        return f"cost  {cost}  ({', '.join(parts)})"

    def document(self) -> dict[str, Any]:
        """Return the bill as a JSON document."""
        return {
            "verdicts": self.verdicts, "asked": self.asked, "cached": self.cached, "by_rule": self.by_rule,
            "calls": self.calls, "tokens": self.tokens, "cost_usd": self.cost_usd, "failed": dict(self.failed),
        }  # fmt: skip


@dataclass(slots=True)
class Judged:
    """One judge's verdicts on all items.

    Args:
        name: Name of the judge.
        verdicts: Verdicts by item name; a pair has one per order.
        fingerprints: Fingerprints of judge and rubric.
        models: Models as the provider names them.
    """

    name: str
    verdicts: dict[str, tuple[pb.Verdict, ...]] = field(default_factory=dict)
    fingerprints: set[str] = field(default_factory=set)
    models: set[str] = field(default_factory=set)

    def take(self, item: str, verdicts: tuple[pb.Verdict, ...]) -> None:
        """Add the verdicts on an item."""
        self.verdicts[item] = verdicts
        self.fingerprints |= {verdict.fingerprint for verdict in verdicts if verdict.fingerprint}
        self.models |= {verdict.model for verdict in verdicts if verdict.model}

    def scores(self, items: Sequence[Item], rubric: AskedRubric, criterion: str | None) -> list[float | None]:
        """Return the score of each item; None without a valid verdict."""
        return [rubric.score(dict(self.verdicts[item.name][0].scores), criterion) for item in items]

    def choices(self, items: Sequence[Item]) -> list[PairJudgement | None]:
        """Return the choice for each pair; None if either order has none."""
        judgements = []
        for item in items:
            forward, backward = (_CHOICES.get(verdict.choice, "") for verdict in self.verdicts[item.name])
            judgements.append(PairJudgement(forward, backward) if forward and backward else None)
        return judgements


class JudgeClient:
    """A client of a judge service.

    Args:
        stub: Stub of the service.
        access: Judges and limits.
    """

    def __init__(self, stub: Any, access: JudgeAccess) -> None:
        self._stub = stub
        self._access = access
        self.bill = Bill()

    async def rubric(self, reference: str) -> AskedRubric:
        """Return a rubric by name or file.

        Raises:
            InvalidInputError: No rubric has that name, or the file is wrong.
        """
        rubric = known_rubric(reference)
        if rubric is not None:
            return rubric
        with translated():
            return listed_rubric(reference, await list_rubrics(self._stub, 30))

    async def judge_all(
        self, items: Sequence[Item], rubric: AskedRubric, name: JudgeName | None, sample_index: int = 0
    ) -> Judged:
        """Judge all items with one judge.

        Args:
            items: Answers, or pairs if the rubric compares.
            rubric: The rubric.
            name: The judge; None for the service's default.
            sample_index: A new index bypasses cached verdicts.

        Raises:
            AssayError: The service refuses the request.
        """
        judged = Judged(str(name) if name is not None else "the service's default judge")
        ask = self._compared if rubric.compares else self._graded
        shows = sys.stderr.isatty()
        judged_count = 0
        async for item, verdicts in ask(items, rubric, name, sample_index):
            judged.take(item, verdicts)
            for verdict in verdicts:
                self.bill.take(verdict)
            judged_count += 1
            if shows:
                click.echo(f"\r{judged_count} of {len(items)} judged", nl=False, err=True)
        if shows:
            click.echo("\r" + " " * 40 + "\r", nl=False, err=True)
        return judged

    async def _graded(
        self, items: Sequence[Item], rubric: AskedRubric, name: JudgeName | None, sample_index: int
    ) -> AsyncIterator[tuple[str, tuple[pb.Verdict, ...]]]:
        width = self._access.concurrency
        slots = asyncio.Semaphore(width)

        async def requests() -> AsyncIterator[pb.GradeStreamRequest]:
            for number, item in enumerate(items):
                await slots.acquire()
                request = pb.GradeRequest(
                    answer=item.answer, contexts=item.contexts, **self._common_fields(item, rubric, name, sample_index)
                )
                yield pb.GradeStreamRequest(request_id=str(number), grade=request)

        with translated():
            async with read_stream(self._stub.GradeStream(requests())) as responses:
                async for response in responses:
                    slots.release()
                    if response.HasField("error"):
                        raise from_status(response.error)
                    yield items[int(response.request_id)].name, (response.grade.verdict,)

    async def _compared(
        self, items: Sequence[Item], rubric: AskedRubric, name: JudgeName | None, sample_index: int
    ) -> AsyncIterator[tuple[str, tuple[pb.Verdict, ...]]]:
        async def compared(item: Item) -> tuple[str, tuple[pb.Verdict, ...]]:
            request = pb.ComparePairRequest(
                answer_a=item.answer,
                answer_b=item.second or "",
                **self._common_fields(item, rubric, name, sample_index),
            )
            with translated():
                response = await self._stub.ComparePair(request, timeout=_PAIR_TIMEOUT_S)
            return item.name, tuple(response.verdicts)

        for batch in _batches(items, self._access.concurrency):
            tasks = [asyncio.ensure_future(compared(item)) for item in batch]
            try:
                for task in asyncio.as_completed(tasks):
                    yield await task
            finally:
                for pending in tasks:
                    pending.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    def _common_fields(
        self, item: Item, rubric: AskedRubric, name: JudgeName | None, sample_index: int
    ) -> dict[str, Any]:  # fmt: skip
        """Return the fields that both kinds of requests share."""
        fields: dict[str, Any] = {
            "question": item.question,
            "reference": item.reference,
            "sample_index": sample_index,
            "rubric": rubric.name,
            "rubric_yaml": rubric.text,
            "run_id": self._access.run_id,
            "spend_cap_nano_usd": self._access.spend_cap_nano_usd,
        }
        temperature, max_tokens = self._access.temperature, self._access.max_tokens
        if name is not None:
            fields["judge"] = judge_spec_pb2.JudgeModel(
                provider=name.provider,
                model=name.model,
                base_url=name.base_url,
                key_variable=name.key_variable,
                temperature=name.temperature if temperature is None else temperature,
                max_tokens=max_tokens or name.max_tokens,
                prices=None if name.prices is None else PRICE.to_wire(name.prices),
            )
        elif temperature is not None or max_tokens:
            fields["judge"] = judge_spec_pb2.JudgeModel(temperature=temperature, max_tokens=max_tokens)
        return fields


def _batches(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
