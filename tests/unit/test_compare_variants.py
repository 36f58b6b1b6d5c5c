"""Options that name variants: which specs they stand for, and how they are refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner

from assay.client.variants import check_variants
from assay.comparison.model import ComparisonSettings
from assay.datasets import records_dataset
from assay.errors import InvalidInputError
from assay_cli.commands.compare_variants import (
    VariantOptions,
    VariantsCommand,
    reports_of_variants,
    user_codes,
    variant_options,
    variant_specs,
)
from assay_cli.commands.validate import validate
from assay_cli.options.shared import run_async

if TYPE_CHECKING:
    from pathlib import Path

    from assay.specs.model import Spec

SPEC = """\
dataset: cases.jsonl
agent: {adapter: openai, target: small, prompt: "{{input}}"}
metrics: [exact_match]
"""


@click.command(cls=VariantsCommand, groups={})
@click.argument("sources", nargs=-1)
@variant_options
def compare(sources: tuple[str, ...], variants: VariantOptions) -> None:
    """Print what was given."""
    click.echo(json.dumps([list(sources), list(variants.prompts), list(variants.models), variants.model]))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder, with two prompts and a spec in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    for name in ("terse", "long"):
        (tmp_path / f"{name}.md").write_text(f"{name}: {{{{input}}}}")
    (tmp_path / "eval").mkdir()
    (tmp_path / "eval" / "assay.yaml").write_text(SPEC)
    return tmp_path


def names(specs: list[Spec]) -> list[str]:
    """Return the names of variants."""
    return [spec.settings.labels["variant"] for spec in specs]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--prompts a.md b.md --model openai:m", [[], ["a.md", "b.md"], [], "openai:m"]),
        ("--prompts a.md --prompts b.md c.md", [[], ["a.md", "b.md", "c.md"], [], ""]),
        ("one two --models x y", [["one", "two"], [], ["x", "y"], ""]),
        ("--models x y -- one", [["one"], [], ["x", "y"], ""]),
        ("--model x one", [["one"], [], [], "x"]),
    ],
)
def test_an_option_takes_values_up_to_the_next_option(words: str, expected: list[object]) -> None:
    """Several values after one option, and the option given again, mean the same."""
    result = CliRunner().invoke(compare, words.split())
    assert result.exit_code == 0, result.output
    assert json.loads(result.output) == expected


def test_prompts_are_found_from_here_and_not_from_the_spec(folder: Path) -> None:
    """Each prompt is a variant of the spec, called like its file; --set changes all of them."""
    options = VariantOptions(prompts=("terse.md", "long.md"), overrides=("agent.target=big",), spec=folder / "eval")
    specs = variant_specs(options)
    assert names(specs) == ["terse", "long"]
    assert [spec.settings.agent.options["prompt"] for spec in specs] == ["terse: {{input}}", "long: {{input}}"]
    assert {spec.settings.agent.target for spec in specs} == {"big"}
    assert specs[0].dataset == folder / "eval" / "cases.jsonl"


def test_models_agents_and_values_name_variants(folder: Path) -> None:
    """A model may name its provider, an agent be a function, a URL or a command; a key set twice makes variants."""
    spec = folder / "eval"
    models = variant_specs(VariantOptions(models=("small", "anthropic:other"), spec=spec))
    assert [(one.settings.agent.adapter, one.settings.agent.target) for one in models] == [
        ("openai", "small"),
        ("anthropic", "other"),
    ]
    agents = variant_specs(
        VariantOptions(
            agents=("a:f", "http://127.0.0.1:1/x", "b/c.py:f", "node c.js", "./d"),
            overrides=("agent={concurrency: 2}",),
            spec=spec,
        )
    )
    assert [one.settings.agent.adapter for one in agents] == ["python", "http", "python", "command", "command"]
    hot = variant_specs(VariantOptions(overrides=("agent.temperature=0", "agent.temperature=1"), spec=spec))
    assert names(hot) == ["temperature=0", "temperature=1"]
    assert [one.settings.agent.options["temperature"] for one in hot] == [0, 1]


def test_without_a_spec_the_preset_is_used(folder: Path) -> None:
    """Prompts, a model and a dataset are enough."""
    options = VariantOptions(prompts=("terse.md", "long.md"), model="openai:small", test_cases=folder / "cases.jsonl")
    specs = variant_specs(options)
    assert {(spec.settings.preset, spec.settings.agent.target) for spec in specs} == {("prompt-quality", "small")}
    assert specs[0].dataset == folder / "cases.jsonl"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (VariantOptions(prompts=("a.md", "b.md")), "there is no assay.yaml here: name the spec with --spec"),
        (VariantOptions(prompts=("a.md", "b.md"), model="openai:m"), "name the dataset with --test-cases"),
        (VariantOptions(prompts=("a.md",), models=("m",)), "--prompts and --models each name variants"),
        (VariantOptions(models=("m",), overrides=("agent.x=1", "agent.x=2")), "--models and --set agent.x each name"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_options_that_do_not_fit_are_refused(options: VariantOptions, message: str) -> None:
    """The message names the options to use instead."""
    with pytest.raises(click.UsageError) as raised:
        variant_specs(options)
    assert message in raised.value.message


def test_wrong_variants_are_refused_with_the_option_that_named_them(folder: Path) -> None:
    """One variant alone, the same one twice and a prompt that is not there are problems of the option."""
    spec = folder / "eval"
    with pytest.raises(InvalidInputError, match=r"--prompts terse\.md: gives 1 variant"):
        variant_specs(VariantOptions(prompts=("terse.md",), spec=spec))
    with pytest.raises(InvalidInputError, match="variant m: is given twice"):
        variant_specs(VariantOptions(models=("m", "m"), spec=spec))
    with pytest.raises(InvalidInputError, match=r"--prompts lost\.md: there is no file"):
        variant_specs(VariantOptions(prompts=("terse.md", "lost.md"), spec=spec))


def test_every_problem_of_the_cases_comes_before_anything_is_started(folder: Path) -> None:
    """A variable that a case lacks is reported with its variant before the start; shared problems are reported once."""
    (folder / "eval" / "cases.jsonl").write_text('{"input": "q", "expected_output": "a"}\n')
    (folder / "long.md").write_text("{{tone}} {{input}}")
    options = VariantOptions(prompts=("terse.md", "long.md"), spec=folder / "eval")

    async def run() -> None:
        specs = variant_specs(options)
        async with reports_of_variants(options, specs, ComparisonSettings(), server="unix:/nowhere"):
            pass

    with pytest.raises(InvalidInputError, match=r"long: case .*does not fit the prompt"):
        run_async(run())


def test_a_spec_with_variants_is_validated(folder: Path) -> None:
    """`assay validate` checks each variant and names them; a problem names the variant that has it."""
    (folder / "eval" / "cases.jsonl").write_text('{"input": "q", "expected_output": "a"}\n')
    spec = folder / "eval" / "assay.yaml"
    variants = "variants: [{name: warm, set: {agent.temperature: 1}}, {name: toned, set: {agent.prompt: 'PROMPT'}}]\n"
    spec.write_text(SPEC + variants.replace("PROMPT", "{{input}}!"))
    done = CliRunner().invoke(validate, [str(spec), "--server", "127.0.0.1:1"], standalone_mode=False)
    assert (done.return_value, "variants warm, toned" in done.output) == (0, True), done.output
    spec.write_text(SPEC + variants.replace("PROMPT", "{{tone}} {{input}}"))
    done = CliRunner().invoke(validate, [str(spec), "--server", "127.0.0.1:1"], standalone_mode=False)
    assert done.return_value == 2
    assert "toned: case" in done.output
    assert "warm: case" not in done.output


def test_a_problem_of_several_variants_names_each_of_them(folder: Path) -> None:
    """A variable that no case has is a problem of both prompts; fifty are listed, and all are counted."""
    (folder / "eval" / "cases.jsonl").write_text('{"input": "q", "expected_output": "a"}\n' * 60)
    spec = folder / "eval" / "assay.yaml"
    variants = "[{name: a, set: {agent.prompt: '{{tone}}'}}, {name: b, set: {agent.prompt: '{{tone}} {{input}}'}}]"
    spec.write_text(f"{SPEC}variants: {variants}\n")
    done = CliRunner().invoke(validate, [str(spec), "--server", "127.0.0.1:1"], standalone_mode=False)
    lines = done.output.partition("60 problems:\n")[2].splitlines()
    assert lines[0].startswith("  cases.jsonl: a, b: case "), done.output
    assert lines[50:] == ["  cases.jsonl: a, b: ... and 10 more"]


def test_code_that_cannot_be_loaded_names_its_variants(folder: Path) -> None:
    """`assay compare` and `assay validate` report all code that cannot be loaded with its variants."""
    (folder / "eval" / "cases.jsonl").write_text('{"input": "q", "expected_output": "a"}\n')
    spec = folder / "eval" / "assay.yaml"
    variants = ", ".join(
        f"{{name: {name}, set: {{agent.target: '{name}:answer'}}}}" for name in ("absent_1", "absent_2")
    )
    agent = "agent: {adapter: python, target: 'absent:answer'}"
    spec.write_text(f"dataset: cases.jsonl\n{agent}\nmetrics: [exact_match]\nvariants: [{variants}]\n")
    with pytest.raises(InvalidInputError) as caught:
        user_codes(variant_specs(VariantOptions(spec=spec)))
    assert [problem.field for problem in caught.value.problems] == ["absent_1: agent.target", "absent_2: agent.target"]
    assert "absent_2: agent.target: there is no module 'absent_2'" in caught.value.message
    done = CliRunner().invoke(validate, [str(spec), "--server", "127.0.0.1:1"], standalone_mode=False)
    assert "absent_1: agent.target: there is no module 'absent_1'" in done.output


def test_options_of_one_target_are_checked_for_each_variant(folder: Path) -> None:
    """Variants of one agent that differ in an option alone: the one whose option names nothing is found."""
    (folder / "eval" / "cases.jsonl").write_text('{"input": "q", "expected_output": "a"}\n')
    (folder / "eval" / "agent.py").write_text(
        "def answer(question, opened):\n    return ''\ndef client():\n    yield\n"
    )
    spec = folder / "eval" / "assay.yaml"
    variants = "[{name: right}, {name: wrong, set: {agent.lifespan: 'agent:clinet'}}]"
    agent = "agent: {adapter: python, target: 'agent:answer', lifespan: 'agent:client'}"
    spec.write_text(f"dataset: cases.jsonl\n{agent}\nmetrics: [exact_match]\nvariants: {variants}\n")
    done = CliRunner().invoke(validate, [str(spec), "--server", "127.0.0.1:1"], standalone_mode=False)
    assert done.return_value == 2
    assert "wrong: agent.lifespan: " in done.output
    assert "right: " not in done.output


def test_a_problem_of_the_dataset_names_no_variant(folder: Path) -> None:
    """A problem of the dataset itself is listed once."""
    specs = variant_specs(VariantOptions(prompts=("terse.md", "long.md"), spec=folder / "eval"))
    with pytest.raises(InvalidInputError) as caught:
        check_variants(specs, records_dataset([{"input": ["q"]}]))
    assert [problem.field for problem in caught.value.problems] == ["record 1, input"]
