"""The `judge` of a spec: read, checked with everything else, and its rubric taken along as text."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.judge_specs import judge_of

from assay.errors import Problem, SpecError
from assay.judging.prices import price_problems
from assay.model.model_price import ModelPrice
from assay.model.run import AgentSpec, JudgeModel, MetricSpec, RunSpec
from assay.specs.judging import check_judges, key_variable_of
from assay.specs.loader import load_spec, spec_from_mapping
from assay.wire.judging import JUDGE
from assay.wire.run import SETTINGS

if TYPE_CHECKING:
    from pathlib import Path

    from assay.specs.model import Spec

RUBRIC = """\
name: tone
description: Whether it is friendly.
criteria:
  - {name: politeness, description: Whether the customer is treated with respect.}
"""


def spec_of(judge: object, metrics: list[Any] | None = None, environ: dict[str, str] | None = None) -> Spec:
    """Return a spec with this judge."""
    data = {"agent": {"adapter": "replay"}, "metrics": metrics or ["quality"], "judge": judge}
    return spec_from_mapping(data, needs_dataset=False, judge_environ=environ)


def problems_of(judge: object, **given: Any) -> list[Problem]:
    """Return what is wrong with a spec that has this judge."""
    with pytest.raises(SpecError) as caught:
        spec_of(judge, **given)
    return caught.value.problems


@pytest.mark.parametrize("judge", [None, "none", {"provider": "none"}])
def test_without_a_judge_nobody_judges(judge: object) -> None:
    """The default is no judge, which a spec may also state."""
    spec = spec_of(judge)
    assert spec.settings.judges == ()
    assert not spec.needs_judge(())


def test_every_field_is_read() -> None:
    """What a spec says is what travels to the orchestrator; what it leaves out has its default."""
    full = {"provider": "openai", "model": "m", "base_url": "http://127.0.0.1:1/v1/", "key_variable": "K",
            "rubric": "answer", "temperature": 0, "max_tokens": 99, "timeout": "2m", "spend_cap": 2,
            "concurrency": 3}  # fmt: skip
    expected = judge_of(
        "openai", "m", "http://127.0.0.1:1/v1", key_variable="K", temperature=0.0, max_tokens=99, timeout_s=120.0,
        concurrency=3,
    )  # fmt: skip
    settings = spec_of(full, ["quality", "judge_score"]).settings
    assert settings.judges == (expected,)
    assert [metric.rubric for metric in settings.metrics] == ["", "answer"]
    assert settings.spend_cap_nano_usd == 2 * 10**9
    assert spec_of({"provider": "anthropic", "model": "m"}).settings.judges == (judge_of("anthropic", "m"),)
    assert spec_of({"provider": "replay"}).settings.judges == (judge_of("replay"),)


def test_prices_of_a_judge_travel_and_hold_a_cap() -> None:
    """Each juror has its own; without them the judge service's table counts, and its own cap needs that table."""
    there = {"base_url": "http://127.0.0.1:1/v1", "prices": {"input": 0.15, "output": 0.6, "long": 9, "batch": 1}}
    (judge,) = spec_of({"jury": [{**MEMBER, **there}, OTHER], "spend_cap": 2}).settings.judges
    assert [member.prices for member in judge.members] == [ModelPrice(0.15, 0.6, batch=1, long=9), None]
    assert JUDGE.from_wire(JUDGE.to_wire(judge)) == judge
    assert JUDGE.from_json(json.loads(json.dumps(dataclasses.asdict(judge), allow_nan=False))) == judge
    priced, unpriced = (dataclasses.replace(judge, members=(judge.members[0],)), judge_of("openai", "m"))
    assert price_problems(priced, ["judge"], {}, is_capped=True) == []
    assert price_problems(unpriced, ["judge"], {}, is_capped=False) == []
    for one, environ, said in (
        (judge_of("openai", "of-nowhere"), {}, "write its prices beside it in the spec"),
        (priced, {"ASSAY_JUDGE_SPEND_CAP_USD": "1"}, "a spend cap of its own"),
    ):
        (problem,) = price_problems(one, ["judge"], environ, is_capped=True)
        assert said in problem.message
        assert problem.field == "judge.model"


MEMBER = {"provider": "openai", "model": "m"}
OTHER = {"provider": "anthropic", "model": "n"}


@pytest.mark.parametrize(
    ("judge", "field", "message"),
    [
        ("openai", "judge", "must be a mapping"),
        ({}, "judge.provider", "is missing"),
        ({**MEMBER, "prices": "list"}, "judge.prices", "must be a mapping such as {input: 2.5, output: 10}"),
        ({**MEMBER, "prices": {"input": 1}}, "judge.prices.output", "is missing"),
        ({**MEMBER, "prices": {"input": 1, "output": -1}}, "judge.prices.output", "not negative"),
        ({**MEMBER, "prices": {"input": 150000, "output": 1}}, "judge.prices.input", "at most 10,000"),
        ({**MEMBER, "prices": {"input": 1, "output": 1, "cached": 1}}, "judge.prices.cached", "price"),
        ({"jury": [MEMBER, OTHER], "prices": {"input": 1, "output": 1}}, "judge.prices", "another one for each judge"),
        ({"model": "m"}, "judge.provider", "is missing"),
        ({"provider": "opnai", "model": "m"}, "judge.provider", "did you mean 'openai'"),
        ({"provider": "none", "model": "m"}, "judge.provider", "nothing else may be set"),
        ({"provider": "openai"}, "judge.model", "is missing"),
        ({"provider": "openai", "model": 3}, "judge.model", "must be a string"),
        ({"provider": "replay", "base_url": "http://x"}, "judge.base_url", "no meaning for replay"),
        ({"provider": "openai", "model": "m", "base_url": "ftp://x"}, "judge.base_url", "http or https"),
        ({"provider": "openai", "model": "m", "base_url": "http://u:p@x"}, "judge.base_url", "without a user"),
        ({"provider": "openai", "model": "m", "temperature": 3}, "judge.temperature", "0 to 2"),
        ({"provider": "openai", "model": "m", "temperature": "hot"}, "judge.temperature", "must be a number"),
        ({"provider": "openai", "model": "m", "max_tokens": 0}, "judge.max_tokens", "1 to 100,000"),
        ({"provider": "openai", "model": "m", "timeout": "soon"}, "judge.timeout", "duration"),
        ({"provider": "openai", "model": "m", "timeout": "2h"}, "judge.timeout", "1s to 1h"),
        ({"provider": "openai", "model": "m", "spend_cap": -1}, "judge.spend_cap", "not negative"),
        ({"provider": "openai", "model": "m", "spend_cap": "2$"}, "judge.spend_cap", "must be a number"),
        ({"provider": "openai", "model": "m", "concurrency": 201}, "judge.concurrency", "1 to 200"),
        ({"provider": "openai", "model": "m", "batch": "yes"}, "judge.batch", "true or false"),
        ({"provider": "replay", "batch": True}, "judge.batch", "recorded verdicts"),
        ([{"provider": "openai", "model": "m"}], "judge.jury", "two judges or more"),
        ({"jury": "openai"}, "judge.jury", "two judges or more"),
        ({"jury": [MEMBER, {"provider": "anthropic"}]}, "judge.jury[1].model", "is missing"),
        ({"jury": [MEMBER, {"provider": "none"}]}, "judge.jury[1].provider", "is none"),
        ({"jury": [MEMBER, MEMBER]}, "judge.jury[1]", "the same judge as jury[0]"),
        ({"jury": [MEMBER, {**MEMBER, "spend_cap": 2}]}, "judge.jury[1].spend_cap", "write it once"),
        ({"jury": [MEMBER, OTHER], "model": "m"}, "judge.model", "write it into the list"),
        ({"jury": [MEMBER, OTHER], "timeout": "soon"}, "judge.timeout", "duration"),
        ({"jury": [MEMBER, {**OTHER, "temperature": 3}]}, "judge.jury[1].temperature", "0 to 2"),
        ({"provider": "openai", "model": "m", "canaries": 5}, "judge.canaries", "from 0 to 1"),
        ({"provider": "openai", "model": "m", "canaries": "few"}, "judge.canaries", "must be a share of the cases"),
        ({"provider": "openai", "model": "m", "canaries": {"share": "x"}}, "judge.canaries.share", "must be a number"),
        ({"provider": "openai", "model": "m", "canaries": {"limit": 2}}, "judge.canaries.limit", "from 0 to 1"),
        ({"provider": "openai", "model": "m", "canaries": {"acept": 1}}, "judge.canaries.acept", "did you mean"),
        ({"provider": "openai", "model": "m", "replay": "f"}, "judge.provider", "is for a judge that is asked"),
        ({"provider": "openai", "model": "m", "api_key": "sk"}, "judge.api_key", "key_variable"),
        ({"provider": "openai", "modle": "m"}, "judge.modle", "did you mean 'model'"),
        ({"provider": "openai", "model": "m", "rubric": 3}, "judge.rubric", "name of a rubric"),
        ({"provider": "openai", "model": "m", "rubric": "no/such.yaml"}, "judge.rubric", "cannot be read"),
    ],
)
def test_what_is_wrong_is_told_at_its_field(judge: object, field: str, message: str) -> None:
    """Each mistake has a message at its field, and nothing is silently dropped."""
    assert [problem for problem in problems_of(judge) if problem.field == field and message in problem.message]


def test_all_mistakes_come_at_once_with_their_lines(tmp_path: Path) -> None:
    """Those of the judge beside those of the rest, and those of a rubric with its own file and lines."""
    (tmp_path / "tone.yaml").write_text(RUBRIC.replace("description: Whether it is friendly.", "scale: [1, 5]"))
    file = tmp_path / "assay.yaml"
    file.write_text(
        "dataset: qa.jsonl\nagent: {adapter: replay}\nmetrics: [qualty]\njudge:\n  provider: openai\n"
        "  spend_cap: lots\n  rubric: tone.yaml\n"
    )
    with pytest.raises(SpecError) as caught:
        load_spec(file)
    places = {(problem.file.rpartition("/")[2], problem.line, problem.field) for problem in caught.value.problems}
    assert {
        ("assay.yaml", 3, "metrics[0]"),
        ("assay.yaml", 6, "judge.spend_cap"),
        ("assay.yaml", 4, "judge.model"),
        ("tone.yaml", 2, "scale"),
        ("tone.yaml", None, "description"),
    } <= places


def test_a_rubric_of_ones_own_travels_as_text(tmp_path: Path) -> None:
    """Its file is read here, relative to the spec; one that compares two answers is no rubric for a run."""
    (tmp_path / "rubrics").mkdir()
    (tmp_path / "rubrics" / "tone.yaml").write_text(RUBRIC)
    data = {"agent": {"adapter": "replay"}, "metrics": ["judge_score"],
            "judge": {"provider": "openai", "model": "m", "rubric": "rubrics/tone.yaml"}}  # fmt: skip
    (metric,) = spec_from_mapping(data, base_dir=tmp_path, needs_dataset=False).settings.metrics
    assert (metric.rubric, metric.rubric_yaml) == ("tone", RUBRIC)
    (tmp_path / "rubrics" / "tone.yaml").write_text("compares: true\n" + RUBRIC)
    with pytest.raises(SpecError, match="compares two answers"):
        spec_from_mapping(data, base_dir=tmp_path, needs_dataset=False)


@pytest.mark.parametrize(
    ("judge", "environ", "field"),
    [
        ({"provider": "openai", "model": "m"}, {}, "judge.provider"),
        ({"provider": "anthropic", "model": "m"}, {"ANTHROPIC_API_KEY": ""}, "judge.provider"),
        ({"provider": "openai", "model": "m", "key_variable": "MINE"}, {"OPENAI_API_KEY": "k"}, "judge.key_variable"),
    ],
)
def test_a_key_that_is_not_set_is_found_before_the_run(judge: object, environ: dict[str, str], field: str) -> None:
    """It is a problem of the spec where the judge will be started from this environment."""
    (problem,) = problems_of(judge, environ=environ)
    assert problem.field == field
    assert "is not set" in problem.message
    assert spec_of(judge).needs_judge(())
    assert not spec_of(judge, metrics=["latency"], environ=environ).needs_judge(())


def test_a_service_of_ones_own_needs_no_key() -> None:
    """The provider's key goes to the provider alone."""
    judge = {"provider": "openai", "model": "m", "base_url": "http://127.0.0.1:1/v1"}
    assert spec_of(judge, environ={}).needs_judge(())
    assert key_variable_of(JudgeModel("openai", "m", "http://127.0.0.1:1/v1")) == ""
    assert key_variable_of(JudgeModel("openai", "m")) == "OPENAI_API_KEY"


def test_an_orchestrator_checks_again_what_a_client_sent() -> None:
    """The orchestrator checks a client's judge again, because other clients may have sent it."""
    wrong = judge_of("openai", "", "x", name="ä", max_tokens=0, timeout_s=0.1)
    metrics = [
        MetricSpec("judge_score", judge="ä", rubric="own", rubric_yaml="name: ["),
        MetricSpec("quality", judge="none"),
        MetricSpec("tone", kind="quality", rubric="answer"),
        MetricSpec("latency", judge="ä"),
    ]
    settings = RunSpec("r", AgentSpec("replay"), metrics, judges=(wrong, judge_of("openai", "m", name="ä")))
    problems = check_judges(dataclasses.replace(settings, spend_cap_nano_usd=10**16))
    fields = {problem.field for problem in problems}
    member = "judges[0].members[0]"
    assert {f"{member}.model", f"{member}.base_url", f"{member}.max_tokens", "judges[0].timeout_ms"} <= fields
    assert {"judges[0].name", "judges[1].name", "spend_cap_nano_usd"} <= fields
    assert {"metrics[1].judge", "metrics[2].rubric", "metrics[3].judge"} <= fields
    assert any(field.startswith("metrics[0].rubric") for field in fields)
    assert [check_judges(dataclasses.replace(settings, judges=())) != [], "metrics[0].judge" in fields] == [True, False]


@pytest.mark.parametrize("judge", [[MEMBER, OTHER], {"jury": [MEMBER, OTHER], "spend_cap": 2, "batch": True}])
def test_a_jury_is_a_list_of_judges_with_all_else_in_common(judge: object) -> None:
    """Each keeps who it is; what is said once holds for all, over the wire and back too."""
    data = {"agent": {"adapter": "replay"}, "metrics": ["judge_score"], "judge": judge}
    (read_judge,) = spec_from_mapping(data, needs_dataset=False).settings.judges
    assert [member.identity for member in read_judge.members] == ["openai:m", "anthropic:n"]
    assert read_judge.identity == "openai:m + anthropic:n"
    assert JUDGE.from_wire(JUDGE.to_wire(read_judge)) == read_judge


def test_each_key_of_a_jury_is_needed() -> None:
    """The judge without a key is named."""
    (problem,) = problems_of([MEMBER, OTHER], environ={"OPENAI_API_KEY": "k"})
    assert problem.field == "judge.jury[1].provider"


JUDGES = {"judges": {"strict": OTHER, "fast": MEMBER}, "agent": {"adapter": "replay"}, "spend_cap": 5}


def test_metrics_choose_among_judges_by_name(tmp_path: Path) -> None:
    """Each metric has its judge and its rubric; the first judge is that of a metric that names none."""
    (tmp_path / "tone.yaml").write_text(RUBRIC)
    metrics = [
        "quality",
        {"tone": {"kind": "judge_score", "judge": "strict", "rubric": "./tone.yaml"}},
        {"facts": {"kind": "judge_score", "judge": "fast", "rubric": "answer", "threshold": 0.5}},
        {"assertions": {"judge": "fast"}},
    ]
    settings = spec_from_mapping({**JUDGES, "metrics": metrics}, base_dir=tmp_path, needs_dataset=False).settings
    assert [judge.name for judge in settings.judges] == ["strict", "fast"]
    assert settings.spend_cap_nano_usd == 5 * 10**9
    chosen = [(settings.judge_of(metric), metric.rubric, metric.rubric_yaml) for metric in settings.metrics]
    assert [(judge.name if judge else "", *own) for judge, *own in chosen] == [
        ("strict", "", ""), ("strict", "tone", RUBRIC), ("fast", "answer", ""), ("fast", "", "")
    ]  # fmt: skip
    assert SETTINGS.from_wire(SETTINGS.to_wire(settings)) == settings


def test_a_default_judge_stands_beside_named_ones() -> None:
    """The rubric of a judge is the default of its own metrics alone."""
    data = {
        **JUDGES, "spend_cap": None, "judge": {**MEMBER, "model": "m2", "rubric": "a", "spend_cap": 1},
        "metrics": ["judge_score", {"other": {"kind": "judge_score", "judge": "strict"}}],
    }  # fmt: skip
    settings = spec_from_mapping(data, needs_dataset=False).settings
    assert [judge.name for judge in settings.judges] == ["judge", "strict", "fast"]
    assert [metric.rubric for metric in settings.metrics] == ["a", ""]


@pytest.mark.parametrize(
    ("changes", "field", "message"),
    [
        ({"judges": []}, "judges", "must be a mapping"),
        ({"judges": {"strict": None}}, "judges.strict", "names no provider"),
        ({"judges": {"two words": MEMBER}}, "judges.two words.name", "letters, digits"),
        ({"judges": {"strict": {**MEMBER, "spend_cap": 1}}}, "judges.strict.spend_cap", "for the whole run"),
        ({"judges": {"strict": {"jury": [MEMBER, MEMBER]}}}, "judges.strict.jury[1]", "the same judge"),
        ({"judges": {f"j{number}": MEMBER for number in range(21)}}, "judges", "more than 20"),
        ({"judges": {"judge": OTHER}, "judge": MEMBER}, "judges.judge", "another name"),
        ({"judge": {**MEMBER, "spend_cap": 1}}, "spend_cap", "is set twice"),
        ({"judges": None}, "spend_cap", "name one under `judge`"),
        ({"metrics": [{"quality": {"judge": "stric"}}]}, "metrics[0].quality.judge", "did you mean 'strict'"),
        ({"metrics": [{"quality": {"judge": 3}}]}, "metrics[0].quality.judge", "must be the name of a judge"),
        ({"metrics": [{"quality": {"rubric": "answer"}}]}, "metrics[0].quality.rubric", "is for judge_score"),
        ({"metrics": [{"latency": {"judge": "strict"}}]}, "metrics[0].latency.judge", "unknown parameter"),
        ({"metrics": [{"judge_score": {"rubric": "no/such"}}]}, "metrics[0].judge_score.rubric", "cannot be read"),
    ],
)
def test_what_is_wrong_with_named_judges_is_told_at_its_place(changes: Any, field: str, message: str) -> None:
    """In the judge, in the metric that names it, or at the cap."""
    with pytest.raises(SpecError) as caught:
        spec_from_mapping({"metrics": ["quality"], **JUDGES, **changes}, needs_dataset=False)
    assert [problem for problem in caught.value.problems if problem.field == field and message in problem.message]
