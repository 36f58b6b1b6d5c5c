"""Prompt templates: plain substitution, and every variable checked against the case."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.model.case import Case, Turn
from assay.specs.prompt_template import case_problems, case_values, fill, template_problem, variables_of


def case(question: str = "", contexts: tuple[str, ...] = (), **variables: Any) -> Case:
    """Return a case of one turn."""
    return Case("c", (Turn(question),), variables=variables, contexts=contexts)


@pytest.mark.parametrize(
    ("template", "values", "text"),
    [
        ("Say {{word}}!", {"word": "hello"}, "Say hello!"),
        ("{{ word }}{{word}}", {"word": "a"}, "aa"),
        ("{{n}} {{yes}} {{none}}", {"n": 3, "yes": True, "none": None}, "3 true null"),
        ("{{list}}", {"list": ["ä", 1]}, '["ä", 1]'),
        ("{{a}}", {"a": "{{b}}", "b": "x"}, "{{b}}"),
        ("{{a}}", {"a": r"\1 \g<0> %s {a}"}, r"\1 \g<0> %s {a}"),
        ("{{user.name}}", {"user.name": "Ada", "user": {"name": "no"}}, "Ada"),
        ("{{ticket text}}", {"ticket text": "t"}, "t"),
        ('{"a": {"b": "{{x}}"}}', {"x": "y"}, '{"a": {"b": "y"}}'),
        ("{x} {{{x}}}", {"x": "y"}, "{x} {y}"),
        ("سؤال: {{input}}", {"input": "أين؟"}, "سؤال: أين؟"),
    ],
)
def test_a_template_is_filled_and_nothing_else_is_interpreted(template: str, values: dict[str, Any], text: str) -> None:
    """Texts go in as they are, other values as JSON, and what went in is not read again."""
    assert fill(template, values) == text


@given(st.text(), st.text())
def test_any_text_can_be_put_in(before: str, value: str) -> None:
    """Whatever the value holds, it arrives unchanged."""
    before = before.replace("{", "").replace("}", "")
    assert fill(before + "{{x}}", {"x": value}) == before + value


def test_variables_are_named_once_in_order() -> None:
    """A variable that stands twice is one."""
    assert variables_of("{{b}} {{ a }} {{b}}") == ("b", "a")


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("{{input}} and {{ticket}", "without }}"),
        ("{{ }}", "without a name"),
        ("{{input}} {x} } }}", ""),
    ],
)
def test_what_is_written_wrongly_is_told(template: str, problem: str) -> None:
    """A place that is never filled would reach the model as braces."""
    found = template_problem(template)
    assert (problem in found) if problem else not found


def test_a_case_gives_its_question_its_passages_and_its_variables() -> None:
    """A variable of the case's own goes before the two that every case has."""
    assert case_values(case("q", ("one", "two"), n=1), "q") == {"input": "q", "contexts": "one\n\ntwo", "n": 1}
    assert case_values(case("q", input="mine"), "q") == {"input": "mine"}


@pytest.mark.parametrize(
    ("given_case", "hits"),
    [
        (case("q", ticket="t"), []),
        (case("q", tickets="t"), ["unknown variable 'ticket'; did you mean 'tickets'?"]),
        (case(ticket="t"), ["the case has no input"]),
        (case(), ["unknown variable 'ticket'; the case has none", "the case has no input"]),
    ],
)
def test_variables_that_a_case_lacks_are_named(given_case: Case, hits: list[str]) -> None:
    """Each lacking variable is one sentence, with the nearest that there is."""
    assert case_problems(["{{ticket}}", "{{ticket}} {{input}}"], given_case) == hits
