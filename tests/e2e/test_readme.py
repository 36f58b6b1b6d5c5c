"""README.md as a newcomer follows it: its files, its commands, and the console output that it shows."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

from tests.e2e.conftest import ROOT
from tests.support.docs.guides import blocks

if TYPE_CHECKING:
    from tests.e2e.conftest import Cli

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"```(\w+)\n(.*?)\n *```", re.DOTALL)
VARYING = [
    (re.compile(r"\b([a-z-]+)-\d{8}-\d{6}-[0-9a-f]{6}\b"), r"\1-ID"),
    (re.compile(r"  [\d.]+ cases/s.*"), ""),
    (re.compile(r"\d+\.\d\d s\b"), "N s"),
]
"""What differs from run to run: ids, latencies, and the speed, which a run that waited nowhere does not show."""


def section(heading: str) -> str:
    """Return the text below a heading of the second level."""
    return README.split(f"## {heading}\n")[1].split("\n## ")[0]


def alike(text: str) -> list[str]:
    """Return the lines of a text without indent and without what differs from run to run."""
    for pattern, put in VARYING:
        text = pattern.sub(put, text)
    return [line.strip() for line in text.splitlines() if line.strip()]


def test_the_output_that_the_readme_shows_is_what_the_command_prints(shared_cli: Cli) -> None:
    """Line by line; where the README has dots, the command says more."""
    shutil.copytree(ROOT / "examples" / "product-manual", shared_cli.folder / "examples" / "product-manual")
    (block,) = blocks("README.md", "console")
    command, *expected = alike(block.text)
    done = shared_cli.run(*command.removeprefix("$ assay ").split())
    printed = alike(done.stderr + done.stdout)
    position = 0
    for line in expected:
        if line == "...":
            continue
        assert line in printed[position:], f"{line!r} is not in\n" + "\n".join(printed[position:])
        position = printed.index(line, position) + 1


def test_an_agent_of_ones_own_in_five_minutes(shared_cli: Cli) -> None:
    """The function, the question, the spec and the commands of the README, copied as they are."""
    text = section("Your own agent in five minutes")
    blocks = {kind: re.sub(r"^ {3}", "", body, flags=re.MULTILINE) for kind, body in BLOCK.findall(text)}
    shared_cli.write("my_agent.py", "def ask(question):\n    return 'Two years from the date of purchase.'\n")
    shared_cli.write("agent.py", blocks["python"])
    shared_cli.write("qa.jsonl", blocks["json"])
    shared_cli.write("assay.yaml", blocks["yaml"])
    commands = re.findall(r"`(?:\.venv/bin/)?assay ([a-z]+ assay\.yaml)`", text)
    assert [command.split()[0] for command in commands] == ["validate", "run"]
    for command in commands:
        done = shared_cli.run(*command.split())
    assert "pass rate  100.0%" in done.stdout
    for option in ("--quick", "--failed-of latest"):
        assert option in text
    shared_cli.run("run", "assay.yaml", "--quick")
