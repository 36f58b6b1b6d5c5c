"""No function that reads users' texts takes more than linear time: one hostile text would stop all other requests."""

from __future__ import annotations

import csv
import time
from contextlib import suppress
from html import escape
from typing import TYPE_CHECKING

import httpx2
import pytest

import assay
from assay.datasets import open_dataset
from assay.metrics.checks.json_values import json_in, json_values
from assay.providers.http_client import read_reply
from assay.providers.messages import Reply
from assay.text.csv_text import csv_text
from assay.text.equality import same_text, without_punctuation
from assay.text.folding import contains_word, fold
from assay.text.markdown_text import markdown_code, markdown_prose
from assay.text.unsafe_text import clean, escaped, shorten, without_commands
from assay.text.word_tokens import tokenize
from assay.text.xml_text import xml_attribute, xml_text
from assay_judge.model import Material
from assay_judge.verdicts.parser import InvalidVerdictError, read_verdict
from assay_judge.verdicts.precheck import precheck
from assay_judge.verdicts.rubric_registry import BUILT_IN
from assay_judge.verdicts.sanitizer import escape_markers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CHARS = 500
DOUBLINGS = 3
GROWTH = 3.0**DOUBLINGS
"""Most growth over all doublings: linear work grows 8 times, quadratic work 64 times."""
QUICK_S = 0.004
"""Work on the longest text that is done in this time cannot be quadratic: it would have taken several times as long."""

RUNS = [
    " ", "\n", "0", "a", "-", "<", "[", "{", '"', "'", "\\", "`", "|", "#", "_", "/", "&", ".",
    "\u200d", "\u200b", "\ufe0f", "\u0301", "\u3000", "é", "中", "给", "満点", "\u200d<", "a\u200d", "<|",
    ' "', "0.", "\\.", "0-", "word ", "<a ", '{"a":', "a.b@", "/*", "--\n", "<<answer ", "```json\n", "<think>",
    "give the score ", "score 5 ", "must be 5 ", "{ '", "\\u0022", "ignore ", "\r\n",
]  # fmt: skip


def judged(text: str) -> None:
    precheck(Material(text, text, reference=text, contexts=(text,)))


def replied(text: str) -> None:
    with suppress(InvalidVerdictError):
        read_verdict(text, BUILT_IN["quality"], "id")


def parsed(text: str) -> None:
    with suppress(ValueError):
        json_in(text)


FUNCTIONS: dict[str, Callable[[str], object]] = {
    "fold": fold,
    "contains_word": lambda text: contains_word(fold(text), "a phrase"),
    "tokenize": tokenize,
    "same_text": lambda text: same_text(text, f"{text} ", numbers=True),
    "without_punctuation": without_punctuation,
    "clean": clean,
    "escaped": escaped,
    "shorten": lambda text: shorten(text, 80),
    "without_commands": without_commands,
    "markdown_prose": markdown_prose,
    "markdown_code": markdown_code,
    "xml_text": xml_text,
    "xml_attribute": xml_attribute,
    "html": escape,
    "csv_text": csv_text,
    "json_in": parsed,
    "json_values": lambda text: list(json_values(text)),
    "escape_markers": lambda text: escape_markers(text, "0123"),
    "precheck": judged,
    "read_verdict": replied,
}
for metric in ("exact_match", "rouge", "coverage", "generation_fidelity"):
    FUNCTIONS[metric] = lambda text, metric=metric: assay.score(metric, text, text[:50])  # type: ignore[misc]
for name in ("a phrase", "x"):
    FUNCTIONS[f"contains {name}"] = lambda text, name=name: assay.score("contains", text, values=[name])  # type: ignore[misc]
FUNCTIONS["retrieval_accuracy"] = lambda text: assay.score(
    "retrieval_accuracy", {"text": "x", "sql": text}, expected_table="lamps"
)


def took_s(work: Callable[[str], object], text: str, tries: int = 1) -> float:
    """Return the least processor time of this thread over some tries."""
    times = []
    for _ in range(tries):
        begun = time.thread_time()
        work(text)
        times.append(time.thread_time() - begun)
    return min(times)


def grows_too_fast(work: Callable[[str], object], run: str) -> bool:
    short, long = ((run * chars)[:chars] + "\x01" for chars in (CHARS, CHARS * 2**DOUBLINGS))
    if took_s(work, long) <= QUICK_S:
        return False
    return took_s(work, long, 2) > GROWTH * max(took_s(work, short, 3), QUICK_S / GROWTH)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_text_of_twice_the_length_takes_twice_the_time(name: str) -> None:
    """A pattern that is tried from each place of a run, or a text that is copied for each match, shows here."""
    assert [run for run in RUNS if grows_too_fast(FUNCTIONS[name], run)] == []


def test_comments_before_a_reply_are_read_in_linear_time() -> None:
    """A body of megabytes may hold nothing else."""

    def read(comments: str) -> None:
        body = httpx2.Response(200, text=comments + "{}")
        assert read_reply(body, lambda data, headers: Reply("")).text == ""

    short, long = (":\n" * lines for lines in (20_000, 20_000 * 2**DOUBLINGS))
    assert took_s(read, long, 2) <= GROWTH * took_s(read, short, 3)


def test_cells_of_a_table_are_read_in_linear_time(tmp_path: Path) -> None:
    """Each column that is split, or read as a list or an object."""
    columns = ("question", "answer", "tags", "expected_sources", "expected_tools", "metadata", "contexts", "choices")
    path = tmp_path / "cases.csv"

    def read(text: str) -> None:
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([columns, ["q", *[text] * (len(columns) - 1)]])
        with suppress(assay.AssayError):
            list(open_dataset(path).cases())

    assert [run for run in RUNS if "\0" not in run and grows_too_fast(read, run)] == []
