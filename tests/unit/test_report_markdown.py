"""The Markdown report: the verdict first, short enough for a comment, and no text of a row does anything in it."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any

import pytest
from markdown_it import MarkdownIt
from tests.support.reports.report_documents import (
    HOSTILE,
    agent_error,
    document,
    failed,
    gate,
    metric,
    row,
    score,
    written,
)

from assay.text.markdown_text import markdown_code, markdown_prose
from assay.text.unsafe_text import shorten

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from markdown_it.token import Token

READER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
PARTS = (
    "@team", "@org/team", "#12", "org/repo#12", "GH-12", "!12", "%12", "&12", "~label", "$12", "a1b2c3d4e5f6a7b8",
    "http://evil.test", "https://evil.test/x", "ftp://evil.test", "www.evil.test", "www.1evil.test", "evil.test",
    "mail@evil.test", "mailto:mail@evil.test", "[text](http://evil.test)", "![image](http://evil.test/x.png)",
    "<img src=x onerror=alert(1)>", "<script>alert(1)</script>", "</details>", "<!-- hidden", "<http://evil.test>",
    "a | b", "a \\| b", "a \\\\| b", "a\\\\\\|b", "a `| b", "``` | ```", "`", "``a``", "` `", "\\`|", "**bold**",
    "_it_", "__b__", "~~gone~~", "# heading", "- item", "1. item", "> quote", "---", "===", "|---|", "\n\n# heading",
    "\r\n| new | row |", "\u202eevil", "\u2066evil", ":tada:", "$x^2$", "&lt;b&gt;", "&#64;team", "\\@team", "[x]: y",
    "[^1]", "مناقصة | @team", "\u200b@team", "\x1b]0;title\x07", HOSTILE,
)  # fmt: skip
UNSEEN = dict.fromkeys(map(ord, "\u200b\u2068\u2069"))
"""What keeps texts apart from each other."""
PAYLOADS = [*PARTS, *(f"{one} {two}" for one, two in itertools.pairwise(PARTS))]
LINKED = re.compile(
    r"@\w|#\d|![\d]|&\d|~\w|\$[^\s\u200b]|(?i:\bgh-\d)|\b[0-9a-f]{7,40}\b|(?i:\b(?:https?|ftp|mailto):[^\s\u200b])"
    r"|(?i:\bwww\.\w)|\w\.[^\W\d]{2,}|[\w.]+@\w|:\w+:|\^\["
)
"""What GitHub, GitLab or a reader with linkify on makes of running text; code is left alone by all of them."""


def text_of(folder: Path, found: Mapping[str, Any]) -> str:
    """The report."""
    (path,) = written(folder, found, "markdown")
    assert path.name == "report.md"
    return path.read_bytes().decode()


def leaves(tokens: list[Token]) -> Iterator[Token]:
    """The tokens of the lines."""
    for token in tokens:
        yield from token.children or [token]


def cells(line: str) -> list[str]:
    """The cells of a line of a table by the rule that a bar after one backslash is text."""
    return re.split(r"(?<!\\)\|", line)[1:-1]


def paired_cells(line: str) -> list[str]:
    """The same by the rule that a backslash and the character after it belong together."""
    return re.findall(r"(?:\\.|[^|\\])+", line.strip().strip("|"))


def is_inert(text: str) -> None:
    """Check that a report holds no link, image, tag or reference but its own parts."""
    for token in leaves(READER.parse(text)):
        assert token.type not in ("link_open", "image", "html_inline", "softbreak", "hardbreak", "s_open"), token
        if token.type == "html_block":
            lines = token.content.strip().splitlines()
            assert lines in (["<details><summary>Provenance</summary>"], ["</details>"]), lines
        if token.type == "text":
            assert LINKED.search(token.content) is None, token.content
    tables = [line for line in text.splitlines() if line.startswith("|")]
    for line in tables:
        assert len(cells(line)) == len(paired_cells(line)) in (4, 9), line


def hostile(payload: str) -> dict[str, Any]:
    """A document with one text in every field that others may write."""
    detail = {"threshold": 0.75}
    bad = failed(payload, question=payload, answer=payload, message=payload, category=payload, references=[payload])
    bad["scores"] = {payload: score(0.1, passed=False, detail=detail, reason=payload)}
    report = document(
        [bad, agent_error("c2", payload)],
        {payload: metric(models=[dict.fromkeys(("model", "revision", "precision", "engine"), payload)])},
        reasons=[payload],
        notes=[payload],
        recommendations=[payload],
        gates=[gate(payload, "fail", message=payload, note=payload)],
        categories=[
            {"name": payload, "row_count": 1, "passed_count": 0, "failed_count": 1, "pass_rate": 0.0, "metrics": {}}
        ],
    )
    report["config"]["agent"] |= {"adapter": payload, "target": payload}
    names = dict.fromkeys(("run_id", "name", "note", "created_at", "spec_path", "assay_version"), payload)
    report["run"] |= {**names, "labels": {payload: payload}}
    report["run"]["dataset"] |= {"name": payload, "dataset_id": payload}
    return report


def test_a_text_does_nothing_in_any_field(tmp_path: Path) -> None:
    """Of over 100 payloads in every field none is a link, an image, a tag or a reference, or ends its cell."""
    assert len(PAYLOADS) >= 100
    for payload in PAYLOADS:
        found = hostile(payload)
        found["run"]["run_id"] = "r1"  # an owner of a folder is one line
        text = text_of(tmp_path, found)
        is_inert(text)
        assert not set(text) & set("\x1b\x00\x07\u202e\u2066\r")
        code = [token.content for token in leaves(READER.parse(text)) if token.type == "code_inline"]
        shown = shorten(payload, 80)
        assert not shown or sum(one.translate(UNSEEN) == shown for one in code) >= 4, payload


@pytest.mark.parametrize("payload", PAYLOADS, ids=range(len(PAYLOADS)))
def test_texts_keep_their_words(payload: str) -> None:
    """Code and running text show what was there, apart from characters that are not seen."""
    shown = shorten(payload, None)
    in_code = READER.renderInline(markdown_code(payload))
    assert in_code.count("<code>") == bool(shown)
    (inline,) = READER.parseInline(f"a {markdown_prose(payload)}")
    text = "".join(token.content for token in inline.children or [])
    assert text.replace("\u200b", "").removeprefix("a").strip() == shown
    assert LINKED.search(text) is None


def test_arabic_has_its_own_direction(tmp_path: Path) -> None:
    """A text with Arabic is isolated, so that numbers and its full stop stand where it has them; others are not."""
    text = "176 مناقصة، حتى 31 مارس 2026."
    whole = text_of(tmp_path, document([failed("c1", question=text, answer="in 2026.")]))
    assert f"| `\u2068{text}\u2069` | `in 2026.` |" in whole


def test_the_verdict_comes_first_and_the_worst_case_on_top(tmp_path: Path) -> None:
    """The first line has the verdict; failed cases come by how far they missed, with the count of the others."""
    rows = [failed(f"c{index}", 0.7 - index / 100) for index in range(30)]
    report = document(
        rows, overall_status="FAIL", reasons=["pass_rate >= 0.5 does not hold"], gates=[gate(outcome="fail")]
    )
    lines = text_of(tmp_path, report).splitlines()
    assert lines[0] == "## FAIL: `manual`"
    assert "**Pass rate 0.0%** [40.0%, 90.0%] (0 of 30 rows)" in lines
    assert "| FAIL | `pass_rate >= 0.5` | 0.8 |  |" in lines
    assert "| `similarity` | 0.8000 | 0.7000 to 0.9000 | ≥ 0.75 reached | 1 | 0 | 0 | 1 | 0 |" in lines
    listed = [line for line in lines if line.startswith("| `c")]
    assert listed[0].startswith("| `c29` | `similarity 0.41 < 0.75` |")
    assert [cells(line)[0].strip() for line in listed] == [f"`c{29 - index}`" for index in range(20)]
    assert "and 10 more" in lines


def test_repeats_are_one_case(tmp_path: Path) -> None:
    """A case that failed sometimes is listed once, with how many of its runs passed."""
    rows = [row("a"), failed("a", repeat=2), row("a", repeat=3)]
    text = text_of(tmp_path, document(rows))
    assert "### 1 failed case, worst first" in text
    assert "`2 of 3 runs passed: similarity 0.5 < 0.75`" in text


def test_errors_are_grouped(tmp_path: Path) -> None:
    """Cases with the same error are one line, the most frequent first; failed answers are not among them."""
    rows = [agent_error(f"c{index}", "timed out" if index else "no route") for index in range(5)]
    text = text_of(tmp_path, document([*rows, failed("x")]))
    assert "### 5 cases with errors\n\n- 4 × `agent error (raised): timed out`\n- 1 × " in text
    assert "### 1 failed case" in text


def test_reasons_and_notes_are_counted_apart(tmp_path: Path) -> None:
    """What is left out of the reasons is what the console leaves out; no note repeats a reason."""
    reasons = [f"gate {number} failed" for number in range(5)]
    report = document([failed("c1")], {}, reasons=reasons, notes=["gate 1", "some rows are apart"])
    text = text_of(tmp_path, report).translate(UNSEEN)
    assert "gate 2 failed; and 2 more\n\nsome rows are apart\n" in text


def test_a_part_of_a_run_says_so_first(tmp_path: Path) -> None:
    """The first line has the number of rows that are there."""
    report = document([row()], partial=True, total_count=9)
    assert text_of(tmp_path, report).startswith("## PARTIAL: 1 of 9 rows, PASS: `manual`\n")


@pytest.mark.parametrize("text", ["x" * 5000, "`" * 5000, "<@|" * 2000, "مناقصة " * 900], ids=["x", "ticks", "<", "ar"])
def test_it_fits_a_comment(tmp_path: Path, text: str) -> None:
    """However long texts are and however many there are, it has at most 60 lines and 60,000 characters."""
    rows = [failed(f"{index}{text}", question=text, answer=text, message=text) for index in range(40)]
    rows += [agent_error(f"e{index}", f"{index}{text}") for index in range(9)]
    report = document(
        rows,
        {f"{index}{text}": metric() for index in range(20)},
        reasons=[text] * 9,
        notes=[text] * 9,
        recommendations=[text] * 9,
        gates=[gate(text, "incomplete", message=text, note=text)] * 20,
    )
    report["run"] |= {"note": text, "labels": {text: text}, "name": text}
    whole = text_of(tmp_path, report)
    assert whole.count("\n") <= 60
    assert 0 < len(whole) <= 60_000
    assert "and 12 more metrics" in whole
    assert "and 14 more gates" in whole
    is_inert(whole)


@pytest.mark.parametrize(
    "hits",
    [
        document([]),
        document(
            [],
            {},
            gates=[],
            latency={"answer_count": 0, "mean_ms": None, "p50_ms": None, "p95_ms": None, "max_ms": None},
        ),
        document(
            [agent_error("a"), agent_error("b")], {"similarity": metric(None, interval=None, meets_threshold=None)}
        ),
        document([row(passed=None, answer=None, scores={"similarity": score(None)})]),
    ],
    ids=["no rows", "nothing", "errors alone", "no verdict"],
)
def test_sparse_runs_have_a_report(tmp_path: Path, hits: Mapping[str, Any]) -> None:
    """Runs without rows, metrics, answers or verdicts have a report that says so."""
    is_inert(text_of(tmp_path, hits))
