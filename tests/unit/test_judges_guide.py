"""docs/judges.md: its files are read, its commands exist with these options, its words are those of the code."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from assay.errors import Problem
from assay.model.canary_summary import KINDS
from assay.model.run_settings import CANARY_LIMIT
from assay.parsing.yaml_nodes import parse_yaml
from assay.specs.judging import JudgeReader
from assay.statistics.trust import LEAST_ITEMS, TENTATIVE_ALPHA, TRUSTED_ALPHA
from assay_cli.commands.judge.calibrate import calibrate
from assay_cli.commands.judge.calibrations import calibrations
from assay_cli.commands.judge.drift import BUILT_IN_ANCHORS, drift
from assay_cli.commands.judge.labels import FIELDS, Labels, read_items
from assay_cli.commands.judge.sample import COLUMNS, sample

GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "judges.md").read_text(encoding="utf-8")
WORDS = " ".join(GUIDE.split())
COMMANDS = {"calibrate": calibrate, "calibrations": calibrations, "drift": drift, "sample": sample}
CALLED = [line for line in GUIDE.splitlines() if line.startswith("assay judge ")]


def block(language: str) -> str:
    """Return the guide's block in a language."""
    found = re.search(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)
    assert found is not None
    return found[1]


def labels(tmp_path: Path, language: str) -> Labels:
    """Return the labels that a block of the guide holds."""
    path = tmp_path / f"labels.{language}"
    path.write_text(block(language), encoding="utf-8")
    return read_items(path)


def test_the_files_of_the_guide_are_read(tmp_path: Path) -> None:
    """Scores of two people, and pairs of which one has three labels."""
    scores, pairs = labels(tmp_path, "csv"), labels(tmp_path, "jsonl")
    assert (scores.kind, [item.people for item in scores.items]) == ("scores", [(5.0, 5.0), (1.0, 2.0), (4.0, 4.0)])
    assert (pairs.kind, [item.people for item in pairs.items]) == ("pairs", [("a",), ("tie", "tie", "b")])


@pytest.mark.parametrize("line", CALLED)
def test_the_commands_of_the_guide_exist(line: str) -> None:
    """Every command with all its options."""
    _, _, name, *arguments = shlex.split(line)
    command = COMMANDS[name]
    command.make_parser(click.Context(command)).parse_args(arguments)


def test_the_spec_of_the_guide_is_valid() -> None:
    """Its judge has the canaries that the guide tells of."""
    problems: list[Problem] = []
    data, _ = parse_yaml(block("yaml"), file="", problems=problems)
    judge = JudgeReader(Path(), problems).read(data["judge"])
    assert problems == []
    assert judge is not None
    assert judge.canary_rate == 0.05


def test_the_guide_names_what_there_is() -> None:
    """Fields, kinds of canaries and bounds are those of the code."""
    for name in (*KINDS, *FIELDS, *COLUMNS):
        assert f"`{name}`" in WORDS
    for bound in (
        f"at least {TRUSTED_ALPHA:g}",
        f"{TENTATIVE_ALPHA:g}",
        f"{LEAST_ITEMS} items",
        f"{CANARY_LIMIT:.0%}".replace("%", " %"),
    ):
        assert bound in WORDS
    assert f"{len(read_items(BUILT_IN_ANCHORS).items)} answers that come with Assay" in WORDS
