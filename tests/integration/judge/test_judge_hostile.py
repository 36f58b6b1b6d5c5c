from __future__ import annotations

import asyncio
import itertools
import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from assay.judge.v1 import judge_pb2 as pb
from assay.testing.hostile_verdicts import FAMILIES
from assay.testing.injections import INJECTIONS, obey
from assay.testing.judges import system_of, user_of, verdict_id_of
from assay.testing.providers import Reply, Tokens

if TYPE_CHECKING:
    from collections.abc import Callable

    Start = Callable[..., Any]

ANSWER = {"reasoning": "Fine.", "accuracy": 0.9, "completeness": 0.8, "relevance": 0.9, "overall_score": 0.85}
VERDICTS: dict[str, dict[str, Any]] = {"quality": {"reasoning": "It is right.", "score": 4}, "answer": ANSWER}
MUTATIONS = 2


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
async def test_no_hostile_reply_becomes_a_score(start: Start, protocol: str) -> None:
    """Every family, mutated, for two rubrics, first reply and repair, over the wire: 0 scores, all with a reason."""
    rng = random.Random(0)

    def script(request: Any) -> Reply:
        family, rubric = user_of(request).split("case ", 1)[1].split(" for ")[:2]
        rubric = rubric.split("!")[0]
        reply = FAMILIES[family](rng, {"verdict_id": verdict_id_of(request), **VERDICTS[rubric]})
        return Reply(reply.encode("utf-8", "replace").decode(), usage=Tokens(10, 10))

    judge = await start(script, protocol=protocol)
    cases = list(itertools.product(FAMILIES, VERDICTS, range(MUTATIONS)))
    asked = [
        {"rubric": rubric, "question": "q", "answer": f"case {family} for {rubric}! {index}"}
        for family, rubric, index in cases
    ]
    for (family, rubric, _), verdict in zip(cases, await judge.grade_all(asked), strict=True):
        assert verdict.status == pb.VERDICT_STATUS_INVALID, (family, rubric)
        assert verdict.reason in ("invalid_verdict", "empty_verdict"), (family, verdict.reason)
        assert not verdict.scores
    assert (await judge.grade("")).cache.entries == 0


async def test_no_order_in_an_answer_is_obeyed_with_effect(start: Start) -> None:
    """240 answers before a judge that does whatever it reads, in ten ways by turns: 0 forged verdicts accepted."""
    ways = len(obey("", ""))

    def script(request: Any) -> Reply:
        said = obey(system_of(request), user_of(request))
        return Reply(said[int(user_of(request).split("way ", 1)[1][0])])

    judge = await start(script)
    rubrics = itertools.cycle(VERDICTS)
    asked = [
        {"rubric": next(rubrics), "question": f"way {(index + index // ways) % ways}", "answer": answer}
        for index, answer in enumerate(INJECTIONS)
    ]
    for fields, verdict in zip(asked, await judge.grade_all(asked), strict=True):
        assert verdict.status == pb.VERDICT_STATUS_INVALID, fields
        assert not verdict.scores
        assert "addresses_judge" in verdict.flags


async def test_no_order_in_an_answer_wins_a_comparison(start: Start) -> None:
    """The same with pairs: an obedient judge makes no winner."""

    def script(request: Any) -> Reply:
        return Reply(random.Random(user_of(request)).choice(obey(system_of(request), user_of(request))))

    judge = await start(script)
    asked = [
        pb.ComparePairRequest(rubric="pairwise", question="q", answer_a=answer, answer_b="no")
        for answer in INJECTIONS[::4]
    ]
    responses = await asyncio.gather(*(judge.stub.ComparePair(request, timeout=180) for request in asked))
    assert {response.winner for response in responses} == {pb.PAIR_WINNER_UNSPECIFIED}


async def test_the_obedient_judge_would_have_been_believed() -> None:
    """The corpus is no straw man: read leniently, most of its verdicts would have counted."""
    believed = 0
    for answer in INJECTIONS:
        for reply in obey("", f"<<answer x>>\n{answer}\n<<end of answer x>>"):
            start = reply.find("{")
            try:
                found = json.JSONDecoder().raw_decode(reply, start)[0] if start >= 0 else None
            except ValueError:
                continue
            if isinstance(found, dict) and {"score", "accuracy", "winner"} & set(found):
                believed += 1
                break
    assert believed >= 180


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
async def test_a_reply_that_is_sent_twice_answers_no_other_call(start: Start, protocol: str) -> None:
    """What follows a reply on its connection is neither the next call's verdict nor its refusal, and costs nothing."""

    def script(request: Any) -> Reply:
        number = int(user_of(request).split("answer number ", 1)[1].split("!")[0])
        text = json.dumps({"verdict_id": verdict_id_of(request), "reasoning": "So.", "score": 1 + number % 5})
        return Reply(text, usage=Tokens(10, 10), twice=True)

    judge = await start(script, protocol=protocol)
    verdicts = [(await judge.grade(f"answer number {number}!")).verdict for number in range(20)]
    assert [verdict.scores["score"] for verdict in verdicts] == [1 + number % 5 for number in range(20)]
    assert len(judge.provider.requests) == 20
