"""Comparisons of real runs of two examples: a known change must be detected, and equal agents must not differ.

Both examples use an agent that overlooks words at random: one word in ten of a mail (`prompt-quality`, a
temperature of 1) or of a question (`city-events`). Each agent answers every case 400 times, which gives 200 comparisons
of an agent with itself, no two of which share an answer. More verdicts than 5 % and three standard errors allow, or a
known change that is not found, end the script with 1. `--json FILE` saves the figures.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import assay
from assay.comparison.cases import CaseScores
from assay.comparison.compare import ComparedRun, compare_runs
from assay.comparison.facts import facts_of
from assay.comparison.model import ComparisonSettings, ComparisonVerdict
from assay.model.answers.agent_response import AgentStatus
from assay.model.limits import MAX_REPEATS
from assay.reports.comparison.document.compared_run import values_of
from assay.reports.document.report import Report, report_of_file
from assay.testing.providers import ScriptedProvider

ALPHA = 0.05
EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
_OVERLOOKED = 0.1
_DECIDED = (ComparisonVerdict.A_BETTER, ComparisonVerdict.B_BETTER)

Agent = Callable[[assay.AgentRequest], Any]


@dataclass(frozen=True)
class Outcome:
    """The outcome of the comparisons of one example.

    Args:
        example: Its name.
        change: How B differs from A; empty if B equals A.
        primary: The metric that decides.
        cases: Of each run.
        comparisons: Their number.
        verdicts: Comparisons whose verdict is that one run is better.
        exploratory: Comparisons in which any other metric has such a verdict, p-value adjusted.
        allowed: The most verdicts that chance explains; None if there is a change.
        difference: Mean of the differences, B - A.
    """

    example: str
    change: str
    primary: str
    cases: int
    comparisons: int
    verdicts: int
    exploratory: int
    allowed: int | None
    difference: float

    @property
    def is_expected(self) -> bool:
        """Whether equal agents hardly ever differ, or the change is always detected."""
        return self.verdicts == self.comparisons if self.allowed is None else self.verdicts <= self.allowed


def main() -> None:
    """Run the examples and print one line per kind of comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=200, help="comparisons of an agent with itself")
    parser.add_argument("--changes", type=int, default=50, help="comparisons with the changed agent")
    parser.add_argument("--seed", type=int, default=17)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    measured = []
    for outcome in outcomes(options.repetitions, options.changes, options.seed):
        measured.append(outcome)
        print(line(outcome), flush=True)
    if options.json:
        options.json.write_text(json.dumps([asdict(outcome) for outcome in measured], indent=1) + "\n")
    sys.exit(any(not outcome.is_expected for outcome in measured))


def outcomes(repetitions: int, changes: int, seed: int) -> Iterator[Outcome]:
    """Yield the outcomes for equal and for changed agents, example by example."""
    allowed = math.floor(repetitions * ALPHA + 3 * math.sqrt(repetitions * ALPHA * (1 - ALPHA)))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="assay-examples-")))
        for name, (unchanged, change, changed) in {
            "prompt-quality": prompts(stack, seed),
            "city-events": agents(seed),
        }.items():
            runs = _runs(unchanged, folder / f"{name}-a", 2 * repetitions)
            yield _outcome(name, "", list(zip(runs[:repetitions], runs[repetitions:], strict=True)), allowed)
            others = _runs(changed, folder / f"{name}-b", changes)
            yield _outcome(name, change, list(zip(runs, others, strict=False)), None)


@dataclass(frozen=True)
class Setting:
    """Settings of an example.

    Args:
        spec: Without dataset and repeats.
        dataset: Its cases.
        agent: The agent; None for that of the spec.
    """

    spec: Mapping[str, Any]
    dataset: Path
    agent: Agent | None = None


def prompts(stack: ExitStack, seed: int) -> tuple[Setting, str, Setting]:
    """Return the prompt that names words, the change, and the prompt without them, both with the stand-in model."""
    folder = EXAMPLES / "prompt-quality"
    sys.path.insert(0, str(folder))
    model = importlib.import_module("keyword_model")
    chance = random.Random(seed)
    provider = stack.enter_context(
        ScriptedProvider(
            lambda request: model.Reply(
                model.answer("\n".join(str(message["content"]) for message in request.body["messages"]), chance)
            )
        )
    )
    agent = {
        "adapter": "openai", "target": "keyword-model", "base_url": provider.openai_url,
        "system_file": str(folder / "prompts/system.md"), "temperature": 1, "max_tokens": 20,
    }  # fmt: skip

    def setting(prompt: str) -> Setting:
        spec = {
            "name": prompt.removesuffix(".md"), "metrics": ["exact_match", "rouge"],
            "agent": {**agent, "prompt_file": str(folder / "prompts" / prompt)},
        }  # fmt: skip
        return Setting(spec, folder / "mails.jsonl")

    return setting("triage.md"), "the prompt without words that point to a topic", setting("triage-first.md")


def agents(seed: int) -> tuple[Setting, str, Setting]:
    """Return the assistant that overlooks words, the change, and the one that names no more than titles."""
    folder = EXAMPLES / "city-events"
    sys.path.insert(0, str(folder))
    assistant = importlib.import_module("agent")
    chance = random.Random(seed)

    def question(text: str) -> str:
        return " ".join(word for word in text.split() if chance.random() >= _OVERLOOKED)

    async def whole(request: assay.AgentRequest) -> Any:
        return await assistant.answer(replace(request, input=question(request.input)))

    async def titles(request: assay.AgentRequest) -> Any:
        answered = await whole(request)
        if answered["events"]:
            answered["text"] = ", ".join(event["title"] for event in answered["events"])
        return answered

    spec = {"name": "city-events", "preset": "rag"}
    dataset = folder / "qa.jsonl"
    return Setting(spec, dataset, whole), "answers that name titles only", Setting(spec, dataset, titles)


def _runs(setting: Setting, folder: Path, count: int) -> list[ComparedRun]:
    """Return runs with one row per case, taken from the repeats of as few runs as possible."""
    runs: list[ComparedRun] = []
    for start in range(0, count, MAX_REPEATS):
        repeats = min(MAX_REPEATS, count - start)
        output = folder / str(start)
        assay.evaluate(
            {**setting.spec, "repeats": repeats}, setting.agent, dataset=setting.dataset, output_dir=output,
            reports=["json"], progress=False,
        )  # fmt: skip
        with report_of_file(output / "results.json") as report:
            runs += _by_repeat(report, repeats)
    return runs


def _by_repeat(report: Report, repeats: int) -> list[ComparedRun]:
    """Return each repeat of a run as a run."""
    facts = facts_of(report.head)
    cases = [CaseScores(tuple(facts.metrics)) for _ in range(repeats)]
    for row in report.rows():
        cases[row["repeat"]].take(
            row["case_id"], values_of(row, facts.metrics), passed=row["passed"], status=AgentStatus(row["status"])
        )
    return [
        ComparedRun(replace(facts, run_id=f"{facts.run_id}#{number}"), scores) for number, scores in enumerate(cases)
    ]


def _outcome(
    example: str, change: str, pairs: Sequence[tuple[ComparedRun, ComparedRun]], allowed: int | None
) -> Outcome:
    comparisons = [compare_runs(pair, ComparisonSettings(alpha=ALPHA)) for pair in pairs]
    metrics = [{metric.metric: metric for metric in comparison.pairs[0].metrics} for comparison in comparisons]
    primary = comparisons[0].primary
    decisive = [metric[primary] for metric in metrics]
    return Outcome(
        example=example,
        change=change,
        primary=primary,
        cases=decisive[0].pair_count,
        comparisons=len(comparisons),
        verdicts=sum(metric.verdict in _DECIDED for metric in decisive),
        exploratory=sum(
            any(metric.verdict in _DECIDED for name, metric in by_name.items() if name not in (primary, "latency"))
            for by_name in metrics
        ),
        allowed=allowed,
        difference=math.fsum(metric.difference or 0.0 for metric in decisive) / len(decisive),
    )


def line(outcome: Outcome) -> str:
    """Return an outcome as a line of a table."""
    what = outcome.change or "the same agent again"
    limit = "all expected" if outcome.allowed is None else f"at most {outcome.allowed} expected"
    return (
        f"{outcome.example}: {what}: {outcome.primary} of {outcome.cases} cases, {outcome.difference:+.3f} on average: "
        f"a verdict in {outcome.verdicts} of {outcome.comparisons} comparisons ({limit}); "
        f"an exploratory metric in {outcome.exploratory}"
    )


if __name__ == "__main__":
    main()
