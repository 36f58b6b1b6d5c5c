"""The arguments of `assay.evaluate` are refused with sentences before anything is read or started."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import assay

if TYPE_CHECKING:
    from pathlib import Path

SPEC = {"metrics": ["exact_match"]}
CASES = [{"question": "a", "answer": "a"}]


def answer(question: str) -> str:
    """An agent as it should be."""
    return question


def refusals(*arguments: Any, **named: Any) -> list[str]:
    """Return the problems that both functions name, which must be the same."""
    with pytest.raises(assay.AssayError) as found:
        assay.evaluate(*arguments, **named)
    with pytest.raises(assay.AssayError) as found_async:
        asyncio.run(assay.evaluate_async(*arguments, **named))
    assert str(found.value) == str(found_async.value)
    return str(found.value).splitlines()


@pytest.fixture(autouse=True)
def nothing_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """No state directory is made."""
    home = tmp_path / "home"
    monkeypatch.setenv("ASSAY_HOME", str(home))
    yield
    assert not home.exists()


@pytest.mark.parametrize(
    ("spec", "kind"), [(3, "int"), (["rouge"], "list"), (None, "NoneType"), (b"assay.yaml", "bytes")]
)
def test_a_spec_is_a_file_or_a_mapping(spec: object, kind: str) -> None:
    """The message shows a valid mapping."""
    (problem,) = refusals(spec, answer, dataset=CASES)
    assert problem == f"spec: must be a file's name, or a mapping such as {{'metrics': ['exact_match']}}, not {kind}"


@pytest.mark.parametrize(
    ("agent", "sentence"),
    [
        ("agent:answer", "must be a function of one question, not a text: the spec names code"),
        (str, "is a class without a method __call__, answer or run"),
        (3, "is a value of type int, which cannot be called"),
        (lambda: "x", "is called with one argument, the question, but it takes ()"),
        (lambda question, history: "x", "is called with one argument, the question, but it takes (question, history)"),
    ],
)
def test_an_agent_is_a_function_of_one_question(agent: object, sentence: str) -> None:
    """No case is asked of an agent that can answer none."""
    (problem,) = refusals(SPEC, agent, dataset=CASES)
    assert problem.startswith(f"agent: {sentence}")


def test_an_agent_of_the_spec_that_is_no_mapping_is_a_problem_of_the_spec() -> None:
    """It is not joined with the function that takes its place."""
    (problem,) = refusals({**SPEC, "agent": "agent:answer"}, answer, dataset=CASES)
    assert problem == "agent: must be a mapping with `adapter`, not 'agent:answer'"


@pytest.mark.parametrize(
    ("metrics", "problem"),
    [
        ([len], "metrics: must be a mapping of names to functions, such as {'off_by': {'function': off_by, "),
        ({"two words": answer}, "metrics: a metric's name has letters, digits and _, and starts with a letter, not"),
        ({3: answer}, "metrics: a metric's name has letters, digits and _, and starts with a letter, not 3"),
        ({"m": lambda zzz: 1}, "metrics.m: has the parameter 'zzz', and a metric receives answer, text"),
        ({"m": type("Given", (), {})}, "metrics.m: is a class: name a function, or an instance that can be called"),
    ],
)
def test_metrics_are_functions_by_name(metrics: object, problem: str) -> None:
    """A metric that cannot be called is refused before a case is asked."""
    (said,) = refusals(SPEC, answer, dataset=CASES, metrics=metrics)
    assert said.startswith(problem)


def test_a_function_takes_the_place_of_one_that_the_spec_names(tmp_path: Path) -> None:
    """A file's spec must list the metric, with its threshold; one that it does not list is refused."""
    (tmp_path / "d.jsonl").write_text('{"question": "q"}\n')
    spec = tmp_path / "assay.yaml"
    spec.write_text("dataset: d.jsonl\nagent: {adapter: replay}\nmetrics: [latency, 'metrics:m']\n")
    (problem,) = refusals(spec, answer, metrics={"m": lambda answer: 1, "other": lambda answer: 1})
    assert problem == ("other: is not a Python metric of the spec: list it as `- other: {function: 'metrics:other'}`")


@pytest.mark.parametrize(
    ("dataset", "sentence"),
    [
        (3, "must be a file's name, a data frame, or a list of cases such as [{'question': '2 + 2?', 'answer': '4'}]"),
        ({"question": "a"}, "must be a file's name, a data frame, or a list of cases such as"),
    ],
)
def test_a_dataset_is_a_file_or_a_list_of_cases(dataset: object, sentence: str) -> None:
    """A single case could be iterated over and would be misread."""
    (problem,) = refusals(SPEC, answer, dataset=dataset)
    assert problem.startswith(f"dataset: {sentence}")


@pytest.mark.parametrize(
    ("selection", "sentence"),
    [
        ({"tags": "hard"}, "select.tags: must be a list of texts, not str"),
        ({"cases": "inv-17"}, "select.cases: must be a list of texts, not str"),
        ({"categories": 3}, "select.categories: must be a list of texts, not int"),
        ({"failed_of": ["latest"]}, "select.failed_of: must be a run, a text, not list"),
        ({"limit": "5"}, "select.limit: must be a whole number, not str"),
    ],
)
def test_a_selection_has_lists_of_texts(selection: dict[str, Any], sentence: str) -> None:
    """A single text would be read as a list of its letters."""
    assert refusals(SPEC, answer, dataset=CASES, select=assay.CaseSelection(**selection)) == [sentence]


def test_reports_are_a_list_and_go_into_a_folder(tmp_path: Path) -> None:
    """A text is not read letter by letter, and without a folder no report would be written."""
    (problem,) = refusals(SPEC, answer, dataset=CASES, output_dir=tmp_path, reports="json")
    assert problem == "reports: must be a list such as ['json', 'html'], not str"
    (problem,) = refusals(SPEC, answer, dataset=CASES, reports=["json"])
    assert problem == "reports: are written to output_dir: name a folder there, or leave them out"


def test_all_problems_come_at_once() -> None:
    """Every wrong argument has a problem of its own."""
    problems = refusals(
        3, 3, metrics=3, dataset=3, select=3, server=3, on_event=3, progress="no", output_dir=3, reports=3
    )
    assert [problem.partition(":")[0] for problem in problems] == [
        "spec", "agent", "metrics", "dataset", "select", "server", "on_event", "progress", "output_dir",
        "reports",
    ]  # fmt: skip


def test_a_report_that_could_not_be_written_is_refused_at_once(tmp_path: Path) -> None:
    """Before a case is asked: `output_dir` lies below a file."""
    (tmp_path / "file").write_text("")
    (problem,) = refusals(SPEC, answer, dataset=CASES, output_dir=tmp_path / "file" / "reports")
    assert problem.endswith("is not a folder): choose another place with output_dir")


@pytest.mark.parametrize(("name", "hint"), [("agnet", "did you mean 'agent'?"), ("zzz", "known: spec, agent, metrics")])
def test_an_unknown_argument_is_named_with_what_there_is(name: str, hint: str) -> None:
    """It is a TypeError, as for any function, and names the valid arguments."""
    unknown: dict[str, Any] = {name: answer}
    with pytest.raises(TypeError, match=rf"evaluate\(\): unknown argument '{name}'") as found:
        assay.evaluate(SPEC, dataset=CASES, **unknown)
    assert hint in str(found.value)


def test_dir_holds_the_public_names_alone() -> None:
    """Completion in a notebook offers nothing else, before and after names are used."""
    code = "import assay\nfound = dir(assay)\nassay.score\nprint(found == dir(assay) == sorted(assay.__all__))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


@pytest.mark.parametrize(
    ("argument", "sentence"),
    [
        ({"metrics": "rouge"}, "metrics: must be a list of names, such as ['rouge']"),
        ({"server": "http://h:1"}, "server: is a URL: write host:port, such as h:1"),
        ({"reports": ["json"]}, "reports: are written to output_dir: name a folder there, or leave them out"),
        (
            {"spec": ["rouge"]},
            "spec: must be a file's name, or a mapping such as {'metrics': ['exact_match']}, not list",
        ),
    ],
)
def test_arguments_of_rescore_are_refused_alike(argument: dict[str, Any], sentence: str) -> None:
    """What no run can be scored with is named before a server is asked."""
    with pytest.raises(assay.AssayError) as found:
        assay.rescore("latest", **argument)
    assert str(found.value) == sentence
