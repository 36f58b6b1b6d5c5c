"""The research assistant of examples/encyclopaedia-research: its library, its tools, its sources, its tokens."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from assay.agent_host.loader import load_agent
from assay.model.answers.agent_response import AgentStatus, response_from_json, response_to_json

if TYPE_CHECKING:
    from collections.abc import Callable

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "encyclopaedia-research"
CASES: list[dict[str, Any]] = json.loads((FOLDER / "dataset.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def ask(clean_imports: None) -> Callable[[str], dict[str, Any]]:
    """Return the agent as a function of the question's text."""
    answer = load_agent("agent.py:answer", FOLDER)
    return lambda text: answer(SimpleNamespace(input=text))


@pytest.fixture(scope="module")
def library(ask: Callable[[str], dict[str, Any]]) -> Any:
    """Return the encyclopaedia that the agent reads."""
    return importlib.import_module("encyclopaedia").Encyclopaedia()


def test_articles_are_short_and_link_to_articles(library: Any) -> None:
    """Every article has 80 to 150 words and refers to others that exist."""
    assert len(library.articles) >= 60
    for article in library.articles.values():
        assert 80 <= len(article.text.split()) <= 150, article.title
        assert article.links, article.title
        assert set(article.links) <= library.articles.keys() - {article.title}, article.title


def test_the_dataset_asks_in_several_ways(library: Any) -> None:
    """Some cases need two articles, two or three have none, and the others name articles that exist."""
    absent = [case for case in CASES if not set(case["expected_sources"]) & library.articles.keys()]
    assert {case["category"] for case in absent} == {"not_covered"}
    assert len(absent) == 3
    assert sum(len(case["expected_sources"]) == 2 for case in CASES) == 8
    assert len({case["question"] for case in CASES}) == len(CASES) == 40


@pytest.mark.parametrize(
    ("query", "title"),
    [
        ("Tacoma", "Suspension bridge"),
        ("volcanoes", "Volcano"),
        ("TSUNAMI!", "Earthquake"),
        ("Champollion", "Rosetta Stone"),
    ],
)
def test_the_search_finds_rare_words_and_inflected_ones(query: str, title: str, library: Any) -> None:
    """A rare word leads to its article, whatever its ending and case."""
    assert library.search(query, 1)[0][1].title == title


def test_the_search_ranks_by_score_and_stops_at_the_limit(library: Any) -> None:
    """Scores fall, there are as many results as asked for, and none for words that no article holds."""
    hits = library.search("the sea and the moon", 5)
    assert [score for score, _ in hits] == sorted((score for score, _ in hits), reverse=True)
    assert len(hits) == 5
    assert library.search("xylophone qwerty", 5) == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["question"][:30])
def test_every_answer_shows_how_it_was_found(case: dict[str, Any], ask: Callable[[str], dict[str, Any]]) -> None:
    """One to three searches, articles read only after a search found them, sources ranked, every call counted."""
    response = response_from_json(ask(case["question"]))
    names = [call.name for call in response.tool_calls or ()]
    assert names[0] == "search"
    assert 1 <= names.count("search") <= 3
    assert set(names) <= {"search", "read"}
    seen: set[str] = set()
    for call in response.tool_calls or ():
        if call.name == "search":
            seen |= {item["title"] for item in json.loads(call.result_json)}
        else:
            assert json.loads(call.arguments_json)["title"] in seen
    scores = [source.score or 0.0 for source in response.sources]
    assert scores == sorted(scores, reverse=True)
    assert {source.title for source in response.sources} <= seen
    assert len(response.sources) <= 5
    assert response.status is (AgentStatus.SUCCESS if "read" in names else AgentStatus.OUT_OF_SCOPE)


def test_tokens_add_up_and_grow_with_what_was_read(ask: Callable[[str], dict[str, Any]]) -> None:
    """The total is input plus output; two articles cost more than one, and one more than none."""
    totals = []
    for question in ("Who composed the Brandenburg Concertos?", "Which short verse is about a jumping frog?",
                     "How did zero reach the Arab world, and who wrote on algebra in Baghdad?"):  # fmt: skip
        usage = response_from_json(ask(question)).usage
        assert usage is not None
        assert usage.total_tokens == (usage.input_tokens or 0) + (usage.output_tokens or 0)
        totals.append(usage.total_tokens)
    assert totals == sorted(set(totals))


def test_an_answer_quotes_its_sources(ask: Callable[[str], dict[str, Any]], library: Any) -> None:
    """Each sentence of an answer stands in the article that is named after it."""
    text = ask("How did zero reach the Arab world, and who wrote on algebra in Baghdad?")["text"]
    for part in text.rstrip("]").split("] "):
        sentence, _, title = part.rpartition(" [")
        assert sentence in library.articles[title].text


def test_the_hit_rate_is_neither_perfect_nor_poor(ask: Callable[[str], dict[str, Any]]) -> None:
    """The agent finds an expected article for most questions, not always in the first place."""
    ranks = []
    for case in CASES:
        titles = [source["title"] for source in ask(case["question"])["sources"]]
        ranks.append(next((n for n, title in enumerate(titles, 1) if title in case["expected_sources"]), None))
    hit_rate = sum(rank is not None for rank in ranks) / len(ranks)
    mrr = sum(1 / rank for rank in ranks if rank) / len(ranks)
    assert 0.8 <= hit_rate <= 0.95
    assert 0.6 <= mrr < hit_rate


HOSTILE = ["", "  \n", "?!;,", "🐙🐝", "\u202eGlacier\u202c", "and and or; than,", "the of a", "\ud800 glacier \x00",
           "' OR 1=1 --", "((([[[", "glacier " * 200_000, "x" * 1_000_000, "لماذا الجليد أزرق؟",
           "and glacier " * 160]  # fmt: skip


@pytest.mark.parametrize("question", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_questions_get_an_answer(question: str, ask: Callable[[str], dict[str, Any]]) -> None:
    """Whatever is asked, there is an answer of the right shape, and a small one."""
    response = response_from_json(ask(question))
    assert response.text
    assert response.status in (AgentStatus.SUCCESS, AgentStatus.OUT_OF_SCOPE)
    assert len(json.dumps(response_to_json(response))) < 50_000


def test_answers_do_not_change_from_call_to_call_or_thread_to_thread(ask: Callable[[str], dict[str, Any]]) -> None:
    """The same question has the same answer, asked once or by eight threads at a time."""
    questions = [case["question"] for case in CASES]
    alone = [ask(question) for question in questions]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(ask, questions * 3))
    assert together == alone * 3


def test_answers_do_not_depend_on_how_x(tmp_path: Path) -> None:
    """Two processes with different hash seeds give the same answers to the last bit."""
    code = (
        "import json, sys; from types import SimpleNamespace; from agent import answer\n"
        "cases = json.load(open('dataset.json', encoding='utf-8'))\n"
        "print(json.dumps([answer(SimpleNamespace(input=case['question'])) for case in cases]))\n"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", code], cwd=FOLDER, capture_output=True, text=True, check=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(FOLDER)},
        ).stdout
        for seed in ("1", "2")
    ]  # fmt: skip
    assert outputs[0] == outputs[1]
