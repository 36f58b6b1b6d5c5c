"""The page on observability lists every instrument of every service, as the service declares it."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

import assay.rpc.observed_calls
import assay.telemetry.exporter
import assay_embedder.instruments
import assay_judge.instruments
import assay_orchestrator.instruments
from assay.telemetry.instruments import Instrument

PAGE = Path(__file__).resolve().parents[2] / "docs/observability.md"
SECTIONS: dict[str, tuple[ModuleType, ...]] = {
    "Every service": (assay.rpc.observed_calls, assay.telemetry.exporter),
    "Orchestrator": (assay_orchestrator.instruments,),
    "Embedder": (assay_embedder.instruments,),
    "Judge": (assay_judge.instruments,),
}
UNITS = ("_seconds", "_total", "_info", "_tokens", "_texts", "_models", "_shards", "_rows", "_runs", "_open", "_work",
         "_flight", "_processes", "_orders")  # fmt: skip


def instruments(section: str) -> list[Instrument]:
    """Return the instruments that the modules of a section declare, by name."""
    found = [one for module in SECTIONS[section] for one in vars(module).values() if isinstance(one, Instrument)]
    return sorted(found, key=lambda one: one.name)


def row(one: Instrument) -> str:
    """Return the row of an instrument."""
    labels = ", ".join(f"`{label}`" for label in one.labels) or "–"
    return f"| `{one.name}` | {one.kind} | {labels} | {one.text} |"


@pytest.mark.parametrize("section", SECTIONS)
def test_every_instrument_has_its_row(section: str) -> None:
    """Name, kind, labels and text are those of the code; a row without an instrument is none of this service."""
    text = PAGE.read_text(encoding="utf-8")
    listed = re.findall(r"^\| `assay_.*$", text.partition(f"### {section}\n")[2].partition("\n#")[0], re.MULTILINE)
    assert listed == [row(one) for one in instruments(section)]


def test_names_follow_the_conventions_of_prometheus() -> None:
    """Counters end in _total, others in their unit or what they count; a cache has no team."""
    for one in (one for section in SECTIONS for one in instruments(section)):
        assert re.fullmatch(r"assay_[a-z_]+", one.name)
        assert (one.kind == "counter") == one.name.endswith("_total"), one.name
        assert one.name.endswith(UNITS), one.name
        if "cache" in one.text:
            assert "team" not in one.labels, one.name
