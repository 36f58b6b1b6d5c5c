"""Each service's README lists every flag of its program with its default."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from assay_embedder.settings import Settings as Embedder
from assay_judge.settings import Settings as Judge
from assay_orchestrator.settings import Settings as Orchestrator

SERVICES = Path(__file__).resolve().parents[2] / "services"
READERS = {"embedder": Embedder.read, "judge": Judge.read, "orchestrator": Orchestrator.read}
ROW = re.compile(r"^\| (`--[^|]*) \| ([^|]*) \| [^|]+ \|$", re.MULTILINE)
OPTION = re.compile(r"^  (--[a-z-]+(?:, --[a-z-]+)?)(?: [A-Z_|]+)? +(.*)$", re.MULTILINE)
OWN = ("--help", "--version")


def comparable(default: str) -> float | str:
    """Return a default as a number where it is one, else as text with the home folder as ~."""
    text = default.strip("`").replace(str(Path.home()), "~")
    try:
        return float(text)
    except ValueError:
        return text


def flags_of_help(service: str, capsys: pytest.CaptureFixture[str]) -> dict[str, float | str]:
    """Return every flag of a program with the default that its help shows."""
    with pytest.raises(SystemExit):
        READERS[service](["--help"], {})
    on_one_line = re.sub(r"\n {9,}", " ", capsys.readouterr().out)
    flags = dict(OPTION.findall(on_one_line))
    assert all(text.endswith(")") and " (default: " in text for flag, text in flags.items() if flag not in OWN), flags
    return {flag: comparable(text.rpartition(" (default: ")[2][:-1]) for flag, text in flags.items() if flag not in OWN}


@pytest.mark.parametrize("service", READERS)
def test_every_flag_is_in_the_readme_with_its_default(
    service: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Help and README agree on flags and defaults; each flag has one row."""
    monkeypatch.setenv("COLUMNS", "1000")
    rows = ROW.findall((SERVICES / service / "README.md").read_text(encoding="utf-8"))
    listed = {flag.replace("`", ""): comparable(default) for flag, default in rows}
    assert listed == flags_of_help(service, capsys)
    assert len(listed) == len(rows)
