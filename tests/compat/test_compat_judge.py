"""Verdicts and judged runs that the base stored, used by this version."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from assay.testing.judges import says
from assay.testing.providers import Reply, ScriptedProvider

if TYPE_CHECKING:
    from tests.e2e.conftest import Cli

pytestmark = pytest.mark.compat

CASES = 6
GOOD = {"reasoning": "It is right.", "score": 4}
AGENT = """
def answer(request):
    with open("asked", "a") as asked:
        asked.write(request.case_id + "\\n")
    return request.input.upper()
"""


def write_project(cli: Cli, provider: ScriptedProvider) -> None:
    """Write a spec whose answers are judged by a provider on a port of this machine."""
    cli.write("agent.py", AGENT)
    cli.write("qa.jsonl", "\n".join(json.dumps({"id": f"c{n}", "question": f"q{n}"}) for n in range(CASES)))
    cli.write("prices.yaml", "prices: [{model: '*', input: 1, output: 5}]")
    cli.env |= {"ASSAY_JUDGE_PRICES": str(cli.folder / "prices.yaml"), "ASSAY_JUDGE_ATTEMPTS": "1"}
    judge = {"provider": "openai", "model": "judge-1", "base_url": provider.openai_url, "canaries": 0}
    cli.write("assay.yaml", {
        "name": "judged", "dataset": "qa.jsonl", "agent": {"adapter": "python", "target": "agent:answer"},
        "metrics": ["quality", "latency"], "judge": judge, "gates": ["quality >= 4"],
    })  # fmt: skip


def newest(cli: Cli) -> dict[str, Any]:
    """Return the newest run."""
    found: dict[str, Any] = json.loads(cli.run("runs", "list", "--json").stdout)["runs"][0]
    return found


def judging_of(cli: Cli, run_id: str) -> dict[str, Any]:
    """Return what the judging of a run was and cost."""
    found: dict[str, Any] = json.loads(cli.run("runs", "show", run_id, "--json").stdout)["summary"]["judging"]
    return found


def asked(cli: Cli) -> int:
    """Return how often the agent was asked."""
    return len((cli.folder / "asked").read_text().split())


def test_a_run_that_awaits_verdicts_is_judged(versions: tuple[Cli, Cli]) -> None:
    """The answers of a run whose judge failed in the base are judged by this version, and no agent is asked."""
    base, own = versions
    with ScriptedProvider(Reply("no such key", status=401)) as broken:
        write_project(base, broken)
        base.run("run", "assay.yaml", status=3)
        port = int(broken.openai_url.rpartition(":")[2].partition("/")[0])
    run = newest(base)
    assert (run["state"], run["pause_cause"], asked(base)) == ("paused", "judge", CASES)
    with ScriptedProvider(says(GOOD), port=port):
        own.run("runs", "resume", run["run_id"])
    assert (newest(own)["state"], newest(own)["passed"], asked(own)) == ("completed", CASES, CASES)


def test_stored_verdicts_are_found(versions: tuple[Cli, Cli]) -> None:
    """Verdicts in the base's store are not paid for again, and the run that paid for them keeps its figures.

    Where this version asks the judge in other words than the base, a verdict of the base is none of its own.
    """
    base, own = versions
    with ScriptedProvider(says(GOOD)) as provider:
        write_project(base, provider)
        base.run("run", "assay.yaml")
        run_id = newest(base)["run_id"]
        before = judging_of(base, run_id)
        assert len(provider.requests) == CASES
        after = judging_of(own, run_id)
        own.run("run", "assay.yaml")
        again = judging_of(own, newest(own)["run_id"])
        has_same_words = again["fingerprints"] == before["fingerprints"]
        assert len(provider.requests) == (CASES if has_same_words else 2 * CASES)
    assert (after["cost_usd"], after["asked_count"]) == (before["cost_usd"], before["asked_count"])
