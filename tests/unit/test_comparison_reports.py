"""Reports of comparisons: figures that can be computed again, words that claim no more, and texts that do nothing."""

from __future__ import annotations

import csv
import dataclasses
import io
import itertools
import json
import math
import shlex
from dataclasses import replace
from html import unescape
from typing import TYPE_CHECKING, Any

import click
import pytest
from tests.support.docs.guides import blocks
from tests.support.reports.charts import layout_problems, texts
from tests.support.reports.comparison_reports import COMPARISON_SCHEMA, A, B, compared, filled, run_document, three, two
from tests.support.reports.golden_reports import GOLDEN
from tests.support.reports.report_documents import HOSTILE, validator
from tests.unit.charts.test_charts_text import glyphs
from tests.unit.test_report_markdown import LINKED, PARTS, READER, cells, leaves, paired_cells

from assay.comparison import allowed_drop, model, stopping_outcome
from assay.comparison import decision as decision_model
from assay.comparison.decision import DecisionRules, decide
from assay.comparison.facts import facts_of
from assay.comparison.joined import label_of
from assay.comparison.metric_pairs import FEW_CLUSTERS, LARGE_LOSSES
from assay.comparison.model import ComparisonVerdict, FailOn, NoiseFloor, RunRef, Side
from assay.errors import InvalidInputError
from assay.model.interval import Interval
from assay.model.limits import MAX_COMPARED_RUNS
from assay.reports.charts.fonts import Fonts
from assay.reports.comparison.formats import plots
from assay.reports.comparison.formats.cases_csv import write_cases
from assay.reports.comparison.formats.json_document import comparison_document
from assay.reports.comparison.formats.markdown import comparison_markdown
from assay.reports.comparison.formats.notebook_html import comparison_html
from assay.reports.comparison.formats.short_text import short_lines
from assay.reports.comparison.formats.text import comparison_lines
from assay.reports.comparison.words.figures import Figures
from assay.reports.comparison.words.headline import Naming, verdict_sentence
from assay.reports.comparison.words.sentences import banners, cautions
from assay.reports.comparison.writing import write_comparison
from assay.reports.folder import ReportFolder
from assay.reports.words.run_commands import case_command
from assay.text.unsafe_text import UNSAFE, json_text
from assay_cli.commands.runs.group import show

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from assay.reports.comparison.document.comparison_report import ComparisonReport


ARABIC = "المطالبة الأساسية للإجابة عن المناقصات الحكومية المطروحة"
PAYLOADS = [*PARTS, "=1+1", "@SUM(A1)", "-2+3", "\t=1", "</script><img src=x>", "<!--<script>"]


@pytest.fixture(scope="module")
def of_two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComparisonReport]:
    """Two runs, of which the second is better."""
    with compared(
        tmp_path_factory.mktemp("two"), two(), noise_floors={"accuracy": NoiseFloor(0.4, 0.25, 32)}
    ) as report:
        yield report


@pytest.fixture(scope="module")
def of_three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComparisonReport]:
    """Three runs."""
    with compared(tmp_path_factory.mktemp("three"), three()) as report:
        yield report


def changed(report: ComparisonReport, **changes: Any) -> ComparisonReport:
    """Return a report whose first pair has another primary metric."""
    pair, *others = report.comparison.pairs
    first, *metrics = pair.metrics
    pair = replace(pair, metrics=(replace(first, **changes), *metrics))
    return replace(report, comparison=replace(report.comparison, pairs=(pair, *others)))


def everything(report: ComparisonReport) -> str:
    """Return all that is said of a comparison in words."""
    return "\n".join([*comparison_lines(report), comparison_markdown(report), json_text(comparison_document(report))])


# -- JSON


def test_the_document_keeps_to_its_schema(of_two: ComparisonReport, of_three: ComparisonReport) -> None:
    """jsonschema finds nothing, in comparisons of two and of three runs, with and without their documents."""
    for report in (of_two, of_three, replace(of_two, runs=(), cases=None)):
        document = json.loads(json_text(comparison_document(report)))
        assert list(validator(COMPARISON_SCHEMA).iter_errors(document)) == []


def test_the_schema_has_every_field_of_a_comparison() -> None:
    """A field that is added to the model is in the document, and so in the schema."""
    of_json = COMPARISON_SCHEMA["$defs"]
    for module in (model, decision_model, allowed_drop, stopping_outcome):
        for name, cls in vars(module).items():
            snake = "".join(f"_{char.lower()}" if char.isupper() else char for char in name).lstrip("_")
            if dataclasses.is_dataclass(cls) and name != "DecisionRules":
                names = [field.name for field in dataclasses.fields(cls)]
                assert of_json[snake]["required"] == names == list(of_json[snake]["properties"]), name


def test_the_document_has_the_names_that_programs_read(of_two: ComparisonReport) -> None:
    """Names of other versions' files, every figure of the comparison, and what it can be computed again from."""
    document = comparison_document(of_two)
    pair = document["statistical_comparison"]["pairwise_comparisons"]["baseline_vs_candidate"]
    assert document["prompt_paths"] == ["prompts/baseline.md", "prompts/candidate.md"]
    assert (pair["overall_winner"], pair["significant_differences"]) == (
        "candidate",
        ["accuracy", "pass_rate", "quality"],
    )
    assert pair["metrics_comparison"]["accuracy"] == {
        "winner": "candidate",
        "test": "fisher_exact",
        "p": pytest.approx(0.0202, abs=1e-4),
    }
    assert [name for name, _ in document["statistical_comparison"]["overall_ranking"]] == ["candidate", "baseline"]
    assert document["recommendation"]["recommended_prompt"] == "candidate"
    assert document["individual_results"][1]["results"]["accuracy"]["value"] == 1.0
    assert document["individual_results"][1]["evaluation_file"] == "evaluation_2.json"
    again = document["comparison"]
    assert (again["settings"]["seed"], again["random_draws"]["resample_count"], again["assay_version"]) == (
        0,
        10_000,
        "0.1.0",
    )
    assert again["pairs"][0]["metrics"][0]["table"] == {
        "both_count": 14,
        "a_only_count": 0,
        "b_only_count": 6,
        "neither_count": 0,
    }
    assert again["pairs"][0]["metrics"][0]["p"] == 0.03125
    assert set(again["pairs"][0]["metrics"][0]["interval"]) == {"low", "high"}


def test_no_number_is_infinite_or_none(of_two: ComparisonReport) -> None:
    """A value that could not be computed is null."""
    report = changed(of_two, t=math.nan, d_z=math.inf)
    one = comparison_document(report)["comparison"]["pairs"][0]["metrics"][0]
    assert (one["t"], one["d_z"]) == (None, None)
    assert "NaN" not in json_text(comparison_document(report))


def test_runs_with_one_name_stay_apart(of_three: ComparisonReport) -> None:
    """Two runs of one name, and names that make one key of two pairs, lose no pair."""
    variants = of_three.comparison.variants
    for names in (("x", "x", "y"), ("x", "x_vs_x", "x_vs_x"), ("a", "a_vs_b", "b_vs_b"), ("x", "x (A)", "x")):
        named = tuple(replace(one, name=name) for one, name in zip(variants, names, strict=True))
        report = replace(of_three, comparison=replace(of_three.comparison, variants=named))
        assert len(set(report.names.values())) == 3
        assert len(comparison_document(report)["statistical_comparison"]["pairwise_comparisons"]) == 3


# -- words


def test_what_is_not_decided_is_never_called_equal(of_two: ComparisonReport) -> None:
    """Inconclusive says why, and how many cases are needed; equivalent comes from a margin alone, and names it."""
    why = "the p-value is not below 0.05"
    figures = {"difference": 0.0, "p": 1.0, "p_adjusted": 1.0}
    undecided = {"verdict": ComparisonVerdict.INCONCLUSIVE, "message": why, **figures}
    report = changed(of_two, **undecided, needed_case_count=40)
    assert not any("needed" in caution for caution in cautions(report))  # without a chosen difference
    chosen = replace(report.comparison.settings, difference=0.05)
    report = replace(report, comparison=replace(report.comparison, settings=chosen))
    assert verdict_sentence(report).startswith(f"Inconclusive: {why}; accuracy of B (candidate) against A (baseline): ")
    assert cautions(report)[0].startswith(
        "few cases: 20 paired cases, where about 40 are needed to detect a difference of 0.05"
    )
    assert "no difference" not in everything(report).lower()
    settings = replace(of_two.comparison.settings, margin=0.05)
    equal = changed(of_two, verdict=ComparisonVerdict.EQUIVALENT, equivalence_interval=Interval(-0.01, 0.02))
    equal = replace(equal, comparison=replace(equal.comparison, settings=settings))
    assert "equivalent on accuracy: the 90% interval [-0.01, +0.02]" in verdict_sentence(equal)
    assert "within the margin of ±0.05" in verdict_sentence(equal)


def test_the_worst_case_is_said_before_the_complete_cases(of_two: ComparisonReport) -> None:
    """A run that fails on the hard cases is not better: the figures with the worst values for them come first."""
    counts = {
        "a_row_count": 0,
        "b_row_count": 29,
        "a_case_count": 0,
        "b_case_count": 29,
        "a_only_case_count": 0,
        "b_only_case_count": 29,
    }
    errors = model.ErrorComparison(**counts, p=3.7e-9, worse=Side.B, differ=True)
    report = changed(
        of_two,
        verdict=ComparisonVerdict.WITHHELD,
        reason="agent_errors",
        message="because of errors B has no value on 29 of 60 cases",
        pair_count=31,
        dropped_case_count=29,
        errors=errors,
        worst_case=model.WorstCase(60, 29, -0.45, Interval(-0.55, -0.35), 0.00001),
    )
    (pair,) = report.comparison.pairs
    pair = replace(pair, errors=errors, common_case_count=60)
    report = replace(report, comparison=replace(report.comparison, pairs=(pair,)))
    assert verdict_sentence(report, Naming.LETTER) == (
        "No verdict on accuracy: because of errors B has no value on 29 of 60 cases. Worst case -0.45 [-0.55, -0.35], "
        "p < 0.0001; complete cases +0.30 [+0.05, +0.50] over 31 of 60 cases, p 0.0312."
    )
    for lines in (short_lines(report), comparison_lines(report), comparison_markdown(report).splitlines()):
        worst = next(at for at, line in enumerate(lines) if "accuracy, worst case" in line)
        assert "accuracy, complete cases" in lines[worst + 1]


def test_values_over_other_cases_have_their_number(of_three: ComparisonReport) -> None:
    """A mean over fewer cases is shown with its number of cases."""
    first, *others = of_three.comparison.variants
    few = replace(first.metrics["quality"], case_count=11)
    variants = (replace(first, metrics={**first.metrics, "quality": few}), *others)
    report = replace(of_three, comparison=replace(of_three.comparison, variants=variants))
    for text in ("\n".join(short_lines(report)), "\n".join(comparison_lines(report)), comparison_markdown(report)):
        assert ", n 11" in text
        assert ", n 20" in text
    assert ", n 11" in " ".join(drawn(report))
    assert ", n 20" not in "\n".join(comparison_lines(of_three))


def test_errors_are_in_the_first_line_whatever_the_verdict(of_three: ComparisonReport) -> None:
    """The first line names errors, also for three runs."""
    counts = {
        "a_row_count": 0,
        "b_row_count": 9,
        "a_case_count": 0,
        "b_case_count": 9,
        "a_only_case_count": 0,
        "b_only_case_count": 9,
    }
    errors = model.ErrorComparison(**counts, p=0.0039, worse=Side.B, differ=True)
    pair, *others = of_three.comparison.pairs
    pairs = (replace(pair, errors=errors), *others)
    report = replace(of_three, comparison=replace(of_three.comparison, pairs=pairs))
    sentence = " B has agent errors in significantly more cases: 9 against 0 of 20 cases, p 0.0039."
    assert verdict_sentence(report, Naming.LETTER) == verdict_sentence(of_three, Naming.LETTER) + sentence


def test_p_values_are_raw_and_adjusted_and_have_their_error_near_the_level(of_two: ComparisonReport) -> None:
    """Another seed may decide otherwise only where the level lies within a few errors of the p-value."""
    near = changed(of_two, p=0.0482, p_error=0.0005, p_adjusted=0.0482)
    assert verdict_sentence(near).endswith(" over 20 cases, p 0.0482 ± 0.0005.")
    assert "0.0482 ± 0.0005   0.0482" in "\n".join(comparison_lines(near))
    assert verdict_sentence(changed(of_two, p=0.03, p_error=0.0012, p_adjusted=0.03)).endswith(", p 0.0300.")
    assert verdict_sentence(changed(of_two, p=0.0352, p_adjusted=0.0704)).endswith(", p 0.0352, adjusted 0.0704.")
    factor = changed(of_two, p=0.0251, p_error=0.0004, p_adjusted=0.0502)
    assert verdict_sentence(factor).endswith(", p 0.0251 ± 0.0004, adjusted 0.0502.")


@pytest.mark.parametrize("reason", ["too_few_differing", "too_few_clusters", "agent_errors", "mismatch"])
def test_no_difference_is_detectable_where_none_can_be_decided(of_two: ComparisonReport, reason: str) -> None:
    """ "Only differences above 0.014 are found" beside +0.406, inconclusive, is a contradiction."""
    report = changed(of_two, verdict=ComparisonVerdict.INCONCLUSIVE, reason=reason, message="so", detectable=0.014)
    assert "80% power" not in everything(report)
    decidable = changed(
        of_two, verdict=ComparisonVerdict.INCONCLUSIVE, reason="not_significant", message="so", detectable=0.25
    )
    assert everything(decidable).count("only differences of accuracy above 0.25 are found with 80% power") == 2


def test_pairs_that_decide_nothing_are_marked(of_three: ComparisonReport) -> None:
    """Only pairs with the baseline decide; another one has its raw p-value, and every matrix says what that is."""
    *pairs, last = of_three.comparison.pairs
    raw = replace(
        last, metrics=tuple(replace(metric, decides=False, p=0.25, p_adjusted=None) for metric in last.metrics)
    )
    report = replace(of_three, comparison=replace(of_three.comparison, pairs=(*pairs, raw)))
    for text in ("\n".join(comparison_lines(report)), comparison_markdown(report)):
        assert "(raw p 0.25)" in text
        assert "pairs with raw p alone decide nothing" in text
    adjusted = replace(
        last, metrics=tuple(replace(metric, decides=True, p_adjusted=metric.p) for metric in last.metrics)
    )
    report = replace(of_three, comparison=replace(of_three.comparison, pairs=(*pairs, adjusted)))
    assert "decide nothing" not in "\n".join(comparison_lines(report))


def test_the_first_line_of_several_runs_is_about_the_baseline(of_three: ComparisonReport) -> None:
    """Runs that no test has compared are not called equally good; with all pairs decided, the best run is named."""
    better = changed(of_three, verdict=ComparisonVerdict.B_BETTER, reason="", message="")
    first = verdict_sentence(better, Naming.LETTER)
    assert first == "accuracy against A: B is better; C is inconclusive (too few cases differ)."
    why = better.comparison.pairs[1].metric("accuracy").message
    assert any(line.startswith(f"  Inconclusive: {why}; accuracy of third ") for line in short_lines(better))
    settings = replace(of_three.comparison.settings, all_pairs=True)
    every = replace(of_three, comparison=replace(of_three.comparison, settings=settings))
    assert verdict_sentence(every, Naming.LETTER).startswith("B has the best accuracy; not significantly worse: ")


def test_agents_that_failed_are_named_beside_what_they_made_worse(of_two: ComparisonReport) -> None:
    """Agent errors are named beside the metric that they made worse."""
    assert "whose agent failed" not in everything(of_two)
    one, other = of_two.comparison.variants
    comparison = replace(of_two.comparison, variants=(one, replace(other, agent_error_count=20)))
    report = replace(of_two, comparison=comparison)
    assert "rows whose agent failed: baseline 0, candidate 20" in cautions(report)
    assert "rows whose agent failed: baseline 0, candidate 20" in "\n".join(comparison_lines(report))
    assert "rows whose agent failed: baseline 0, candidate 20" in comparison_markdown(report)


def test_runs_that_must_not_be_compared_have_no_winner(tmp_path: Path) -> None:
    """Each reason has a line of its own above figures without a verdict, in every report."""
    late = run_document("candidate", B)
    late["summary"]["judging"] = {**late["summary"]["judging"], "fingerprints": ["other"]}
    late["results"]["accuracy"]["version"] = "2"
    with compared(tmp_path, [run_document("baseline", A), late]) as report:
        assert verdict_sentence(report) == "No verdict on accuracy: the runs must not be compared."
        assert [line[:16] for line in comparison_lines(report)[1:3]] == ["NOT COMPARABLE: "] * 2
        assert comparison_markdown(report).count("NOT COMPARABLE") == 2
        assert " better" not in "".join(comparison_lines(report)[:20])
        assert "+0.30 [+0.05, +0.50]" in "".join(comparison_lines(report))


def test_runs_without_a_common_case_have_every_report(tmp_path: Path) -> None:
    """There is nothing to compare, each format says so, and the decision is not to compare."""
    with compared(tmp_path, [run_document("one", A), run_document("other", B, prefix="x")]) as report:
        assert banners(report)[0].startswith("NOT COMPARABLE: runs manual-20261123-164111-one and")
        assert "have no case in common" in everything(report)
        assert comparison_lines(report)[-1] == "decision: not to be compared (exit status 3)"
        write_comparison(report, tmp_path / "out")
        names = {path.name for path in (tmp_path / "out").iterdir()}
        assert names >= {"comparison_results.json", "comparison_report.md", "comparison_cases.csv", "comparison.html"}


def test_cases_that_were_chosen_afterwards_are_exploratory(tmp_path: Path) -> None:
    """A filter gives figures, a line that says why they decide nothing, and no verdict."""
    with compared(tmp_path, three(), where="category:count") as report:
        assert banners(report)[0].startswith("EXPLORATORY: the cases were chosen by the filter 'category:count'")
        assert verdict_sentence(report).startswith("No verdict on accuracy: the cases were chosen by a filter")
        assert " better" not in everything(report)


def test_warnings_say_what_a_statistician_would(of_two: ComparisonReport) -> None:
    """Unequal clusters, skewed differences, rows without errors, and a floor above the difference."""
    report = changed(
        of_two,
        notes=(FEW_CLUSTERS, LARGE_LOSSES),
        cluster_count=10,
        effective_cluster_count=1.5,
        largest_cluster="general",
        largest_cluster_share=0.82,
        interval_method="cr2",
        borderline=True,
        without_errors=0.1,
        without_errors_p=0.5,
    )
    settings = replace(report.comparison.settings, cluster="category")
    report = replace(report, comparison=replace(report.comparison, settings=settings))
    sentence = "\n".join(cautions(report))
    for part in (
        "10 clusters by category, as good as 1.5 of equal size: general has 82% of the cases",
        "the interval is that of cluster-robust errors (CR2): too few clusters",
        "the p-value decides",
        "without the cases that have agent errors: +0.10, p 0.50",
    ):
        assert part in sentence
    equal = changed(report, effective_cluster_count=9.6)
    assert "of equal size" not in "\n".join(cautions(equal))
    assert "a few large differences carry the mean: its interval is doubtful" in "\n".join(cautions(equal))
    floor = (
        "noise floor (A/A): 0.40 accuracy, two standard errors of a pair of equal runs, of which 25.0% of 32 cases "
        "came out differently; the difference is not above it"
    )
    assert floor in comparison_lines(of_two)


def test_the_guide_shows_what_is_printed() -> None:
    """The outputs in docs/comparison-report.md and docs/reading-a-comparison.md are the reviewed ones."""
    shown = [block.text for block in blocks("docs/comparison-report.md", "text")]
    reviewed = [(GOLDEN / "two-runs" / name).read_text("utf-8") for name in ("short.txt", "console.txt")]
    assert shown == reviewed
    (first,) = blocks("docs/reading-a-comparison.md", "text")
    assert reviewed[0].startswith(first.text)


def test_a_regression_is_said_last(tmp_path: Path) -> None:
    """The decision with its exit status and reasons closes what the console prints."""
    with compared(tmp_path, two()[::-1], rules=DecisionRules(max_drop=0.1)) as report:
        last = comparison_lines(report)[-1]
    start = "decision: regression (exit status 1): accuracy of baseline is 0.3 worse than that of candidate, more than"
    assert last.startswith(start)
    assert "accuracy of baseline is significantly worse than that of candidate" in last


def test_a_difference_that_rounds_to_nothing_has_no_minus(of_two: ComparisonReport) -> None:
    """Tokens are shown without decimals: a little less is 0 less, and not -0."""
    variants = [
        replace(one, mean_tokens=tokens) for one, tokens in zip(of_two.comparison.variants, (363.4, 363.1), strict=True)
    ]
    report = replace(of_two, comparison=replace(of_two.comparison, variants=tuple(variants)))
    assert "mean tokens: A 363, B 363 (+0)" in comparison_lines(report)


def test_a_direction_that_nobody_declared_is_named(of_two: ComparisonReport) -> None:
    """A user's metric is taken to be better when higher, and every output says so."""
    pair = of_two.comparison.pairs[0]
    metrics = tuple(replace(metric, is_direction_assumed=metric.metric == "quality") for metric in pair.metrics)
    report = replace(of_two, comparison=replace(of_two.comparison, pairs=(replace(pair, metrics=metrics),)))
    sentence = "quality: higher is taken to be better, as nothing says so; set higher_is_better to true or false"
    assert sentence in short_lines(report)
    assert sentence in comparison_lines(report)
    assert sentence in comparison_document(report)["verdict"]["cautions"]
    assert sentence in comparison_html(report)


@pytest.mark.parametrize("declared", [None, True, False])
def test_a_direction_that_is_declared_later_is_the_same_metric(declared: bool | None) -> None:
    """The spec may say which way is better after the baseline: what was assumed is declared, and nothing else."""
    facts = [
        facts_of(run_document(name, A) | {"config": {"metrics": [_off_by(value)]}, "results": {"off_by": _OFF_BY}})
        for name, value in (("one", None), ("two", declared))
    ]
    assert [fact.metrics["off_by"].is_direction_assumed for fact in facts] == [True, declared is None]
    assert (facts[0].metrics["off_by"].measures == facts[1].metrics["off_by"].measures) is (declared is not False)


_OFF_BY = {"kind": "python", "rule": "at_least", "value": 1.0, "unit": "", "version": "1"}


def _off_by(declared: bool | None) -> dict[str, Any]:
    return {"name": "off_by", "kind": "python", "parameters": {"function": "m:f", "higher_is_better": declared}}


@pytest.mark.parametrize("case_id", ["16", "a b", "a  b", "-1", "it's", "$HOME", "ä", 'q"x'])
def test_the_command_that_shows_a_case_works_when_pasted(case_id: str) -> None:
    """A shell makes of it the words that were meant, whatever the id is."""
    words = shlex.split(case_command("run-1", case_id, server="host:1"))
    context = click.Context(show)
    parameters = show.make_parser(context).parse_args(words[3:])[0]
    assert (words[:3], parameters["run_id"], parameters["case_id"]) == (["assay", "runs", "show"], "run-1", case_id)
    assert parameters["server"] == "host:1"


def test_lost_cases_come_with_the_command_that_shows_one(of_two: ComparisonReport) -> None:
    """Of the first case whose id a terminal takes; there is none for runs in files."""
    (pair,) = of_two.comparison.pairs
    first, second = pair.flipped_cases[:2]
    assert not any("assay runs show" in line for line in short_lines(of_two))
    for case_id, shown in ((first.case_id, first.case_id), ("a\x1b[1m", second.case_id)):
        flipped = (replace(first, case_id=case_id, a=1, b=0), replace(second, a=1, b=0))
        comparison = replace(of_two.comparison, pairs=(replace(pair, lost_case_count=2, flipped_cases=flipped),))
        (lost,) = [line for line in short_lines(replace(of_two, comparison=comparison, server="h:1")) if "lost" in line]
        run_id = of_two.comparison.variants[1].run_id
        assert lost.endswith(f"; assay runs show {run_id} --case {shown} --server h:1")


def _code(commit: str, digest: str, *, dirty: bool = False) -> dict[str, Any]:
    return {"commit": commit * 40, "dirty": dirty, "agent_sha256": digest * 64}


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        ([_code("a", "1"), _code("b", "2", dirty=True)],
         "the agent's code (commit aaaaaaaaaaaa -> bbbbbbbbbbbb, with uncommitted changes)"),
        ([_code("", "1"), _code("", "2")], "the agent's code (SHA-256 111111111111 -> 222222222222)"),
        ([_code("a", "1"), _code("b", "1")], "commit aaaaaaaaaaaa -> bbbbbbbbbbbb; the agent's code is the same"),
        ([_code("a", ""), _code("b", "")], "commit aaaaaaaaaaaa -> bbbbbbbbbbbb"),
        ([_code("a", "1"), _code("a", "1")], "no setting, and not the agent's code"),
        ([None, None], "no setting; the agent's code is not known"),
    ],
)  # fmt: skip
def test_what_changed_names_the_code_of_the_agent(
    tmp_path: Path, codes: list[dict[str, Any] | None], message: str
) -> None:
    """By commit, or by the hash of its files; every form of the output says it, and that nothing changed."""
    documents = [run_document("baseline", A), run_document("candidate", B)]
    for found, code in zip(documents, codes, strict=True):
        found["config"], found["run"]["code"] = documents[0]["config"], code
    with compared(tmp_path, documents) as report:
        assert any(line.startswith(f"what changed: {message}") for line in comparison_lines(report))
        assert message in unescape(comparison_markdown(report).replace("\u200b", ""))
        (path,) = write_comparison(report, tmp_path / "out", ["html"]).written
        page = unescape(path.read_text("utf-8"))
        assert message in page
        assert any(message in line for line in short_lines(report)) is not message.startswith("no setting")


def test_a_notebook_shows_tables(of_two: ComparisonReport) -> None:
    """Metrics under the names of the runs, the cases with their questions, and the decision; texts are escaped."""
    html = comparison_html(replace(of_two, of_run=True))
    for part in ("<table", ">the baseline</th>", ">this run</th>", "Question 12?", "comparison: no regression"):
        assert part in html
    assert "<script>" not in comparison_html(hostile(of_two, "<script>x</script>"))


def test_two_runs_of_one_name_are_called_by_their_ids(tmp_path: Path) -> None:
    """Without their names a reader could not tell which of them is the baseline."""
    documents = [run_document("one", A), run_document("two", B)]
    for document, run_id in zip(documents, ("manual-1", "manual-2"), strict=True):
        document["prompt_path"] = "prompt.md"
        document["run"]["run_id"] = run_id
    with compared(tmp_path, documents) as report:
        assert short_lines(report)[0].startswith("manual-2 is better than manual-1 on accuracy")


def test_very_large_values_have_four_digits() -> None:
    """A formula's value of 2e200 is no line of two hundred digits; one of 14 digits is shown in full."""
    figures = Figures(decimals=2)
    assert figures.interval((-2.5e200, 12_345_678_901_234.0)) == "[-2.5e+200, 12,345,678,901,234.00]"
    assert figures.difference(3e15) == "+3e+15"


def test_a_setting_that_is_empty_is_shown_as_none(of_two: ComparisonReport) -> None:
    """A cell of changed settings is never blank."""
    changes = (model.Change("preset", ("", "rag")),)
    report = replace(of_two, comparison=replace(of_two.comparison, changes=changes))
    assert ["preset", "–", "rag"] in [line.split() for line in comparison_lines(report)]


def test_what_is_not_decided_is_no_regression(of_two: ComparisonReport) -> None:
    """If undecided fails, the last line says so and does not call the run worse."""
    rules = DecisionRules(FailOn.INCONCLUSIVE)
    undecided = changed(of_two, verdict=ComparisonVerdict.INCONCLUSIVE)
    *_, last = comparison_lines(replace(undecided, decision=decide(undecided.comparison, rules)))
    sentence = "whether accuracy of candidate differs from that of baseline is not decided"
    assert last == f"decision: undecided (exit status 1): {sentence}"


# -- CSV


def test_only_compared_cases_have_differences(tmp_path: Path) -> None:
    """Every case is a line, those of one run too; only cases that both have, with equal contents, are subtracted."""
    other = run_document("candidate", "5-5e5")
    other["rows"][1]["question"] = "Another question?"
    with compared(tmp_path, [run_document("baseline", "552-"), other]) as report:
        assert report.cases is not None
        written = io.StringIO()
        write_cases(report, report.cases, written)
    lines = {line["Case"]: line for line in csv.DictReader(io.StringIO(written.getvalue()))}
    assert list(lines) == ["c0", "c1", "c2", "c3", "c4"]
    assert [lines[name]["B - A quality"] for name in lines] == ["0", "", "", "", ""]
    assert (lines["c2"]["A quality"], lines["c2"]["B quality"]) == ("2", "5")
    assert (lines["c3"]["A accuracy"], lines["c3"]["B accuracy"], lines["c3"]["B pass_rate"]) == ("", "0", "0")


# -- hostile texts


def hostile(report: ComparisonReport, payload: str) -> ComparisonReport:
    """Return a report with a payload in every text that others may write."""
    return replace(report, comparison=filled(report.comparison, payload), runs=(), cases=None)


def test_no_text_reaches_a_terminal_as_it_is(of_two: ComparisonReport, of_three: ComparisonReport) -> None:
    """No output line has a control character or begins with a hostile text."""
    for report in (of_two, of_three):
        count = len(comparison_lines(hostile(report, "x")))
        for payload in (HOSTILE, *PAYLOADS):
            lines = comparison_lines(hostile(report, payload))
            assert len(lines) <= count + 6  # footnotes wrap
            assert [line for line in lines if UNSAFE.search(line)] == []


def test_a_text_does_nothing_in_markdown(of_two: ComparisonReport, of_three: ComparisonReport) -> None:
    """No payload is a link, an image, a tag or a reference, or ends its cell."""
    for report in (of_two, of_three):
        for payload in PAYLOADS:
            text = comparison_markdown(hostile(report, payload))
            for token in leaves(READER.parse(text)):
                assert token.type not in ("link_open", "image", "html_inline", "softbreak", "hardbreak"), token
                if token.type == "html_block":
                    assert token.content.strip() in (
                        "<details><summary>Cost, latency, judge and provenance</summary>",
                        "</details>",
                    )
                if token.type == "text":
                    assert LINKED.search(token.content) is None, token.content
            for line in text.splitlines():
                assert not line.startswith("|") or len(cells(line)) == len(paired_cells(line)), line


def test_a_spreadsheet_computes_nothing(tmp_path: Path) -> None:
    """Cells that begin a formula begin with an apostrophe, and no heading has a control."""
    documents = two()
    for document in documents:
        document["rows"] = document["rows"][:5]
        for row in document["rows"]:
            row["case_id"] = "=1+1" + row["case_id"]
            row["category"] = "@SUM(A1)"
        document["results"] = {"=cmd\x1b[31m": document["results"]["quality"]}
        for row in document["rows"]:
            row["scores"] = {"=cmd\x1b[31m": row["scores"]["quality"]}
    with compared(tmp_path, documents) as report:
        assert report.cases is not None
        written = io.StringIO()
        write_cases(report, report.cases, written)
    lines = list(csv.reader(io.StringIO(written.getvalue())))
    assert [line[0] for line in lines[1:]] == [f"'=1+1c{index}" for index in range(5)]
    assert [line[1] for line in lines[1:]] == ["'@SUM(A1)"] * 5
    assert not [cell for cell in lines[0] if cell[0] in "=@+-" or UNSAFE.search(cell)]


# -- sizes


def largest(report: ComparisonReport) -> ComparisonReport:
    """Return a report of as many runs as can be compared, with long names, made from one of three."""
    comparison = report.comparison
    labels = [label_of(index) for index in range(MAX_COMPARED_RUNS)]
    names = [f"{label}{'|@team ' * 12}" for label in labels]
    cases = comparison.pairs[0].flipped_cases * 8
    changes = tuple(replace(comparison.changes[0], path=f"{name}{name}", values=tuple(names)) for name in names)
    grown = replace(
        comparison,
        variants=tuple(
            replace(comparison.variants[index % 3], label=label, name=name, prompt_path=name)
            for index, (label, name) in enumerate(zip(labels, names, strict=True))
        ),
        pairs=tuple(
            replace(comparison.pairs[0], a=RunRef(a, a), b=RunRef(b, b), flipped_cases=cases)
            for a, b in itertools.combinations(labels, 2)
        ),
        ranking=tuple(replace(comparison.ranking[0], label=label) for label in labels),
        changes=changes,
        not_worse_than_best=tuple(RunRef(label, label) for label in labels),
    )
    heads = [report.heads[0]] * len(labels)
    return replace(report, comparison=grown, heads=heads, runs=(), cases=None)


def test_every_report_takes_the_largest_comparison(of_three: ComparisonReport) -> None:
    """Of 26 runs with long names Markdown fits a comment, the console 400 lines, and the picture its sheet."""
    report = largest(of_three)
    assert len(comparison_markdown(report)) <= 60_000
    assert len(comparison_lines(report)) < 400
    sheet = plots.draw(report, Fonts(plots.drawn_text(report)))
    assert layout_problems(sheet) == []
    assert any("18 runs in the radar" in text for text in texts(sheet))


def drawn(report: ComparisonReport) -> list[str]:
    """The texts of the sheet of a comparison, which has no faults of layout."""
    sheet = plots.draw(report, Fonts(plots.drawn_text(report)))
    assert layout_problems(sheet) == []
    return texts(sheet)


def with_values(report: ComparisonReport, name: str, values: Sequence[float | None]) -> ComparisonReport:
    """The comparison with other values of a metric."""
    variants = tuple(
        replace(one, metrics={**one.metrics, name: replace(one.metrics[name], value=value)})
        for one, value in zip(report.comparison.variants, values, strict=True)
    )
    return replace(report, comparison=replace(report.comparison, variants=variants))


def test_no_metric_is_drawn_twice_and_the_radar_leaves_no_hole(of_two: ComparisonReport) -> None:
    """The pass rate of runs that one metric decides is that metric; of two axes, the differences take the place."""
    heading = "Metrics with a bounded scale"
    distinct = drawn(with_values(of_two, "pass_rate", [0.5, 0.6]))
    assert heading in distinct
    assert distinct.count("pass_rate") == 3
    variants = tuple(
        replace(variant, metrics={**variant.metrics, "pass_rate": variant.metrics["accuracy"]})
        for variant in of_two.comparison.variants
    )
    repeated = replace(of_two, comparison=replace(of_two.comparison, variants=variants))
    assert heading not in drawn(repeated)
    assert "pass_rate" not in drawn(repeated)
    assert not any(line.startswith("  pass_rate") for line in short_lines(repeated))


def test_a_metric_without_a_value_is_no_axis_of_the_radar(of_three: ComparisonReport) -> None:
    """Where one of the runs has no value, a point would say that it is 0."""
    whole = drawn(with_values(of_three, "pass_rate", [0.5, 0.6, 0.7]))
    without = drawn(with_values(of_three, "pass_rate", [0.5, None, 0.7]))
    assert "Metrics with a bounded scale" in whole
    assert "Metrics with a bounded scale" not in without


# -- pictures


@pytest.mark.parametrize("name", ["candidate", ARABIC, "東京-" * 30], ids=["Latin", "Arabic", "Chinese"])
def test_pictures_can_be_read(tmp_path: Path, name: str) -> None:
    """No text leaves the sheet or overlaps another, and every letter is drawn, in any script and length."""
    documents = [run_document("baseline", A), run_document(name, B), run_document("third", A)]
    for document in documents:
        document["results"][f"{name} of metric"] = document["results"].pop("quality")
        for row in document["rows"]:
            row["scores"][f"{name} of metric"] = row["scores"].pop("quality")
    for count in (2, 3):
        with compared(tmp_path, documents[:count]) as report:
            fonts = Fonts(plots.drawn_text(report))
            sheet = plots.draw(report, fonts)
        assert layout_problems(sheet) == []
        assert all(0 not in glyphs(text, fonts.families) for text in texts(sheet))
        sentence = " ".join(texts(sheet))
        assert "+0.30 [+0.05, +0.50]" in sentence
        assert "threshold 0.60" in sentence
        assert "\n" not in sentence


# -- files


def test_a_second_comparison_replaces_nothing(tmp_path: Path, of_two: ComparisonReport) -> None:
    """Its files have its id in their names, as those beside a run's report do; the same comparison is written anew."""
    out = tmp_path / "out"
    first = write_comparison(of_two, out, ["json", "markdown", "csv"])
    assert [path.name for path in first.written] == [
        "comparison_results.json",
        "evaluation_1.json",
        "evaluation_2.json",
        "comparison_report.md",
        "comparison_cases.csv",
    ]
    assert json.loads((out / "evaluation_2.json").read_text("utf-8"))["prompt_path"] == "prompts/candidate.md"
    before = {path: path.read_bytes() for path in first.written}
    settings = replace(of_two.comparison.settings, seed=1)
    other = replace(of_two, comparison=replace(of_two.comparison, settings=settings))
    second = write_comparison(other, out, ["json"])
    assert {path: path.read_bytes() for path in first.written} == before
    assert [path.name for path in second.written] == [
        f"{name}-{other.comparison_id}.json" for name in ("comparison_results", "evaluation_1", "evaluation_2")
    ]
    assert write_comparison(of_two, out, ["json"]).written == first.written[:3]
    ReportFolder(tmp_path / "run", "r1")
    beside = write_comparison(of_two, tmp_path / "run", ["markdown"])
    assert [path.name for path in beside.written] == [f"comparison_report-{of_two.comparison_id}.md"]


def test_a_comparison_of_a_server_has_all_but_rows(tmp_path: Path, of_two: ComparisonReport) -> None:
    """Without the documents of the runs every format is written that can be, and a note says what is missing."""
    files = write_comparison(replace(of_two, runs=(), cases=None), tmp_path / "out", plot_format="svg")
    assert [path.name for path in files.written] == [
        "comparison_results.json",
        "comparison_report.md",
        "comparison_plots.svg",
        "comparison.html",
    ]
    assert [note.split(" ")[0] for note in files.notes] == ["evaluation_1.json", "comparison_cases.csv"]
    stored = comparison_document(replace(of_two, runs=(), cases=None))["individual_results"]
    assert [one | {"evaluation_file": None} for one in comparison_document(of_two)["individual_results"]] == stored
    assert {one["test_cases_count"] for one in stored} == {20}


def test_unknown_formats_are_refused_together(tmp_path: Path, of_two: ComparisonReport) -> None:
    """Every name that is wrong is named, before anything is written."""
    with pytest.raises(InvalidInputError) as refused:
        write_comparison(of_two, tmp_path / "out", ["jsno", "pdf"], "gif")
    assert [part in str(refused.value) for part in ("did you mean 'json'", "'pdf'", "'gif'")] == [True] * 3
    assert not (tmp_path / "out").exists()
