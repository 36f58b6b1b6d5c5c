"""Variants of a spec: one checked spec each, every problem at its line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from assay.errors import SpecError
from assay.specs.loader import load_spec
from assay.specs.variants import Variant, load_variants

if TYPE_CHECKING:
    from pathlib import Path

HEAD = """\
dataset: cases.jsonl
labels: {branch: main}
agent: {adapter: openai, target: small, prompt: "{{input}}?", temperature: 0}
metrics: [exact_match]
"""


def spec_of(folder: Path, variants: str) -> Path:
    """Write a spec with these variants, and two prompts beside it."""
    (folder / "terse.md").write_text("Briefly: {{input}}")
    (folder / "long.md").write_text("At length: {{input}}")
    file = folder / "assay.yaml"
    file.write_text(HEAD + variants)
    return file


def problems_of(path: Path, *, variants: tuple[Variant, ...] = ()) -> list[str]:
    """Return what is wrong with the variants of a spec, without the folder."""
    with pytest.raises(SpecError) as raised:
        load_variants(path, variants=variants)
    return [str(problem).replace(f"{path.parent}/", "") for problem in raised.value.problems]


def test_each_variant_is_the_spec_with_its_own_values(tmp_path: Path) -> None:
    """A variant has its name as a label; its prompt file takes the place of the spec's prompt; all else is the same."""
    file = spec_of(
        tmp_path,
        "variants:\n"
        "- {name: terse, set: {agent.prompt_file: terse.md}}\n"
        "- {name: hot, set: {agent.temperature: 1, agent.target: large}}\n"
        "- {name: as it is}\n",
    )  # fmt: skip
    terse, hot, same = load_variants(file, overrides=["agent.temperature=0.5", "repeats=2"])
    assert [spec.settings.labels for spec in (terse, hot)] == [
        {"branch": "main", "variant": "terse"},
        {"branch": "main", "variant": "hot"},
    ]
    assert terse.settings.agent.options["prompt"] == "Briefly: {{input}}"
    assert (hot.settings.agent.target, hot.settings.agent.options["temperature"]) == ("large", 1)
    assert hot.settings.agent.options["prompt"] == same.settings.agent.options["prompt"] == "{{input}}?"
    assert {spec.settings.agent.options.get("temperature") for spec in (terse, same)} == {0.5}
    assert {spec.settings.repeats for spec in (terse, hot, same)} == {2}
    assert same.source == file


def test_all_problems_come_at_once_with_their_lines(tmp_path: Path) -> None:
    """A wrong value stands at the variant's line, one that all variants share stands once at the spec's."""
    file = spec_of(
        tmp_path,
        "gates: [speed > 1]\n"
        "variants:\n"
        "- {name: none, set: {agent.prompt_file: none.md}}\n"
        "- name: hot\n"
        "  set:\n"
        "    agent.temperature: 9\n",
    )  # fmt: skip
    problems = problems_of(file)
    assert len(problems) == 3
    assert problems[0].startswith("assay.yaml:5: gates[0]: ")
    assert problems[1].startswith("assay.yaml:7: variants[0].set.agent.prompt_file: there is no file 'none.md'")
    assert problems[2].startswith("assay.yaml:10: variants[1].set.agent.temperature: ")


def test_a_list_of_variants_is_checked(tmp_path: Path) -> None:
    """Names are there and differ, and a variant sets nothing but the agent."""
    file = spec_of(
        tmp_path,
        "variants:\n"
        "- {name: a, set: {repeats: 3, dataset: other.jsonl}}\n"
        "- {set: [1], colour: red}\n"
        "- {name: b}\n"
        "- {name: b}\n",
    )  # fmt: skip
    problems = problems_of(file)
    assert [problem.partition(": ")[2].partition(": ")[0] for problem in problems] == [
        "variants[0].set.repeats",
        "variants[0].set.dataset",
        "variants[1].colour",
        "variants[1].name",
        "variants[1].set",
        "variants[3].name",
    ]
    assert "2 to 20 variants" in problems_of(spec_of(tmp_path, "variants: [{name: alone}]\n"))[0]
    assert "variants: is missing" in problems_of(spec_of(tmp_path, ""))[0]


def test_a_spec_with_variants_is_not_run_by_itself(tmp_path: Path) -> None:
    """`assay run` refuses it with a sentence that names the command that runs it."""
    file = spec_of(tmp_path, "variants: [{name: a}, {name: b}]\n")
    with pytest.raises(SpecError, match=r"assay\.yaml:5: variants: are run and compared by `assay compare`"):
        load_spec(file)


def test_variants_of_the_command_replace_those_of_the_spec(tmp_path: Path) -> None:
    """A problem of such a variant names the option that gave it."""
    file = spec_of(tmp_path, "variants: [{name: a}, {name: b}]\n")
    prompts = [Variant(name, {"agent.prompt_file": f"{name}.md"}, f"--prompts {name}.md") for name in ("terse", "long")]
    assert [spec.settings.labels["variant"] for spec in load_variants(file, variants=prompts)] == ["terse", "long"]
    lost = Variant("lost", {"agent.prompt_file": "lost.md"}, "--prompts lost.md")
    assert problems_of(file, variants=(prompts[0], lost)) == [
        "--prompts lost.md: there is no file 'lost.md' beside the spec"
    ]


def test_variants_without_a_file(tmp_path: Path) -> None:
    """A mapping with variants gives one spec per variant."""
    data = {"dataset": "d.jsonl", "agent": {"adapter": "openai", "target": "a"}, "metrics": ["latency"]}
    variants = [Variant(name, {"agent.target": name}, f"--models {name}") for name in ("a", "b")]
    specs = load_variants(data, variants=variants)
    assert [spec.settings.agent.target for spec in specs] == ["a", "b"]
    assert [spec.source for spec in specs] == [None, None]
