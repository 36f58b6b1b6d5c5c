"""The summary at the top of the page, from the head of the document."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

from assay.filters.row_filter import RowOutcome
from assay.gates.gates import compared_text
from assay.metrics import METRICS
from assay.model.answers.agent_response import AgentStatus
from assay.model.answers.interrupts import interrupted_note
from assay.model.interval import Interval
from assay.reports.charts.scales import time_text
from assay.reports.formats.html.svg import histogram, interval_bar, shares_bar
from assay.reports.words.code_text import code_text
from assay.reports.words.metric_text import (
    RULES,
    bound_text,
    count_text,
    latency_s,
    partial_text,
    seconds_text,
    value_text,
)
from assay.reports.words.selected_cases import selection_sentence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from markupsafe import Markup

    from assay.reports.formats.html.row_figures import CaseLine, RowFigures

OUTCOME_NAMES = {
    "passed": "passed",
    "failed": "failed",
    "agent_error": "agent error",
    "no_verdict": "no verdict",
    "undecided": "undecided",
}
_MOST_GROUPS = 200  # of categories or tags in the summary; the list of cases can be filtered by any

Pair = tuple[str, str]


class SummaryView:
    """The parts of the page above its list of cases.

    Args:
        head: The document without its rows.
        figures: The figures of the rows.
    """

    def __init__(self, head: Mapping[str, Any], figures: RowFigures) -> None:
        self.head = head
        self.summary: Mapping[str, Any] = head["summary"]
        self.run: Mapping[str, Any] = head["run"]
        self.results: Mapping[str, Mapping[str, Any]] = head["results"]
        self.units = {name: result.get("unit") or "" for name, result in self.results.items()}
        self._figures = figures

    def partial(self) -> str:
        """Return the share of rows that an unfinished run has; empty for a finished run."""
        if not self.summary.get("partial"):
            return ""
        there = self.summary.get("finished_count", sum(self._figures.outcomes.values()))
        return partial_text(there, self.summary["total_count"])

    def verdict(self) -> str:
        """Return the verdict as one sentence."""
        reasons = "; ".join(self.summary["reasons"])
        return f"{self.summary['overall_status'].replace('_', ' ')}" + (f": {reasons}" if reasons else "")

    def selection(self) -> str:
        """Return the part of the dataset that the run covers; empty if it covers all of it."""
        return selection_sentence(self.head)

    def ended(self) -> str:
        """Return the time at which the run ended; if it has not, the time at which it was accepted."""
        return moment(self.run["ended_at"]) or moment(self.run["created_at"])

    def pass_rate(self) -> str:
        """Return the pass rate with its counts."""
        share = value_text("%", self.summary["pass_rate"])
        return f"{share} ({self.summary['passed_count']:,} of {self.summary['decided_count']:,} decided)"

    def outcomes(self) -> list[tuple[str, str, int]]:
        """Return the key, the name and the number of rows of each outcome; undecided, the last, only with rows."""
        counts = self._figures.outcomes
        return [
            (key, name, counts[key])
            for key, name in OUTCOME_NAMES.items()
            if counts[key] or key != RowOutcome.UNDECIDED
        ]

    def interrupted(self) -> str:
        """Return the number of agent errors that wait for a person; empty if none does."""
        return interrupted_note(self.summary.get("interrupted_count", 0))

    def outcomes_bar(self) -> Markup:
        """Return the chart of the outcomes."""
        text = ", ".join(f"{count:,} {name}" for _, name, count in self.outcomes())
        return shares_bar("outcomes", f"Rows: {text}", [(key, count) for key, _, count in self.outcomes()])

    def gates(self) -> list[dict[str, Any]]:
        """Return the criteria with their actual values as text."""
        return [
            {
                **gate,
                "actual": compared_text(gate["expression"], gate["actual"], Interval.of_document(gate.get("interval"))),
                "said": "; ".join(filter(None, (gate["message"], gate.get("note")))),
            }
            for gate in self.summary["gates"]
        ]

    def metrics(self) -> list[dict[str, Any]]:
        """Return a line with a chart for the pass rate and for each metric."""
        rate = {
            "unit": "%", "value": self.summary["pass_rate"], "interval": self.summary.get("pass_rate_interval"),
            "passed_count": self.summary["passed_count"],
            "failed_count": self.summary["decided_count"] - self.summary["passed_count"],
            "scored_count": self.summary["decided_count"],
        }  # fmt: skip
        return [self._metric("pass rate", rate, 0)] + [
            self._metric(name, result, index) for index, (name, result) in enumerate(self.results.items(), 1)
        ]

    def _metric(self, name: str, result: Mapping[str, Any], index: int) -> dict[str, Any]:
        unit, value, interval = result.get("unit") or "", result["value"], Interval.of_document(result.get("interval"))
        threshold, sign = result.get("threshold"), RULES.get(result.get("rule", ""), "")
        shown = {
            "name": name,
            "value": value_text(unit, value),
            "interval": " to ".join(value_text(unit, end) for end in interval) if interval else "",
            "threshold": f"{sign} {bound_text(unit, threshold)}" if threshold is not None else "",
            "goal": f"{sign} {bound_text(unit, result['goal'])}" if result.get("goal") is not None else "",
            "meets": result.get("meets_threshold"),
            "meets_goal": result.get("meets_goal"),
            "passed": result["passed_count"],
            "failed": result["failed_count"],
            "scored": result["scored_count"],
            "missing": self._missing(result),
            "chart": "",
        }
        if value is not None:
            parts = [f"{name} {shown['value']}"]
            parts += [f"95 % interval {shown['interval']}"] if interval else []
            parts += [f"threshold {shown['threshold']}"] if threshold is not None else []
            scale = _scale(result, [value, *(interval or ()), *([threshold] if threshold is not None else [])])
            shown["chart"] = interval_bar(
                f"metric-{index}", ", ".join(parts), value, interval, threshold, scale, meets=shown["meets"]
            )
        return shown

    def _missing(self, result: Mapping[str, Any]) -> str:
        # Unanswered rows are counted among the skipped ones and the errors too.
        parts = (("skipped_count", "skipped"), ("error_count", "errors"), ("unanswered_count", "of them agent errors"))
        return ", ".join(f"{result[key]:,} {noun}" for key, noun in parts if result.get(key))

    def latency(self) -> list[Pair]:
        """Return the latency of the answers."""
        latency = self.summary["latency"]
        names = (("mean", "mean"), ("P50", "p50"), ("P95", "p95"), ("longest", "max"))
        return [
            ("answers", f"{latency['answer_count']:,}"),
            *(
                (name, time_text(latency_s(latency, figure), latency_s(latency, "max") or 0.0))
                for name, figure in names
            ),
            *([("timeouts", f"{latency['timeout_count']:,}")] if latency.get("timeout_count") else []),
        ]

    def latency_chart(self) -> Markup | str:
        """Return the histogram of the latencies; empty if there are none."""
        latency = self.summary["latency"]
        width_s, bins = self._figures.latency_bins(latency_s(latency, "max"))
        marks = [
            (f"{name} {time_text(time, latency_s(latency, 'max') or 0.0)}", time)
            for name, figure in (("P50", "p50"), ("P95", "p95"))
            if (time := latency_s(latency, figure)) is not None
        ]
        if not any(bins):
            return ""
        title = "Latency of the answers: " + ", ".join(mark for mark, _ in marks)
        return histogram("latency-histogram", title, bins, width_s, marks, "s")

    def groups(self, kind: str) -> dict[str, Any]:
        """Return the table of categories or tags.

        Args:
            kind: "categories" or "tags".
        """
        lines = self.summary[kind][:_MOST_GROUPS]
        metrics = [name for name in self.results if any(name in line["metrics"] for line in lines)]
        return {
            "metrics": metrics,
            "left_out": len(self.summary[kind]) - len(lines),
            "omitted": self.summary["omitted_category_count" if kind == "categories" else "omitted_tag_count"],
            "lines": [
                {
                    "name": line["name"],
                    "total": line["row_count"],
                    "passed": line["passed_count"],
                    "failed": line["failed_count"],
                    "pass_rate": value_text("%", line["pass_rate"]),
                    "chart": self._group_bar(f"{kind}-{index}", line),
                    "values": [value_text(self.units[name], line["metrics"].get(name)) for name in metrics],
                }
                for index, line in enumerate(lines)
            ],
        }

    def _group_bar(self, name: str, line: Mapping[str, Any]) -> Markup | str:
        rate = line["pass_rate"]
        if rate is None:
            return ""
        return interval_bar(name, f"pass rate {value_text('%', rate)}", rate, None, None, (0.0, 1.0))

    def judging(self) -> list[Pair]:
        """Return the figures of the judging; empty if no row has a verdict."""
        judging = self.summary.get("judging")
        if not judging:
            return []
        counts = (("verdicts", "verdict_count"), ("asked of the judge", "asked_count"), ("in batches", "batched_count"),
                  ("from the cache", "cached_count"), ("by rule", "by_rule_count"), ("recorded", "recorded_count"),
                  ("not valid", "failed_count"), ("input tokens", "input_tokens"), ("output tokens", "output_tokens"),
                  ("without a price", "unpriced_count"))  # fmt: skip
        pairs = [(label, f"{judging[key]:,}") for label, key in counts if judging.get(key)]
        rates = (("cache hit rate", "hit_rate", "{:.1%}"), ("cost", "cost_usd", "${:.4f}"),
                 ("saved by the cache", "saved_usd", "${:.4f}"),
                 ("spent by the judge's account", "account_usd", "${:.4f}"))  # fmt: skip
        pairs += [(label, form.format(judging[key])) for label, key, form in rates if judging.get(key) is not None]
        if judging.get("unknown_usd"):
            pairs.append(("of it for calls whose outcome is unknown", f"${judging['unknown_usd']:.4f}"))
        pairs += [(f"flagged {flag}", f"{count:,}") for flag, count in (judging.get("flag_counts") or {}).items()]
        refused = (judging.get("refused_parameter_counts") or {}).items()
        pairs += [(f"asked without {name}, which the model refuses", f"{count:,}") for name, count in refused]
        for juror in judging.get("jurors") or ():
            means = "".join(f", {name} {mean:.3f}" for name, mean in juror.get("means", {}).items())
            pairs.append((f"juror {juror['judge']}", f"{count_text(juror['verdict_count'], 'verdict')}{means}"))
        for agreed in judging.get("agreement") or ():
            alpha = "-" if agreed["alpha"] is None else f"{agreed['alpha']:.3f}"
            pairs.append(
                (f"agreement on {agreed['metric']}", f"alpha {alpha} over {count_text(agreed['row_count'], 'row')}")
            )
        tested = judging.get("canaries") or ()
        for canaries in tested:
            mark = "UNTRUSTED: " if canaries.get("is_untrusted") else ""
            name = f"canaries of {canaries['judge']}" if len(tested) > 1 else "canaries"
            pairs.append((name, mark + str(canaries.get("message", ""))))
        return pairs + [("calibration", label) for label in judging.get("calibration_messages") or ()]

    def repeats(self) -> list[Pair]:
        """Return the figures of repeated runs of each case; empty without repeats."""
        repeats = self.summary["repeats"]
        if not repeats:
            return []
        pairs = [("runs of each case", str(repeats["runs_per_case"]))]
        for key, label in (("pass_at_k", "pass@{} (at least one passes)"), ("pass_hat_k", "pass^{} (all pass)")):
            pairs += [(label.format(rate["k"]), value_text("%", rate[key])) for rate in repeats["rates"]]
        variance = repeats["variance"] or {}
        if variance.get("noise_share") is not None:
            pairs.append(("share of the variance within cases", value_text("%", variance["noise_share"])))
        return pairs + ([("advice", str(variance["advice"]))] if variance.get("advice") else [])

    def weighted(self) -> list[Pair]:
        """Return the means weighted by the cases' weights, if these differ."""
        weighted = self.summary["weighted"]
        if not weighted:
            return []
        means = [(name, value_text(self.units.get(name, ""), mean)) for name, mean in weighted["metrics"].items()]
        return [("pass_rate", value_text("%", weighted["pass_rate"])), *means]

    def provenance(self) -> list[Pair]:
        """Return the origin of the run, as names and values."""
        config, dataset, agent = self.head["config"], self.run["dataset"], self.head["config"]["agent"]
        judges, judging = config.get("judges") or (), self.summary.get("judging") or {}
        size = count_text(dataset["case_count"], "case")
        skipped = f", {dataset['skipped_count']:,} skipped" if dataset.get("skipped_count") else ""
        options = {**(agent.get("options") or {})}
        model = options.pop("model", None)
        entries: list[tuple[str, Any]] = [
            ("run", self.run["run_id"]),
            ("name", self.run["name"]),
            ("state", ": ".join(filter(None, (self.run["state"], self.run.get("state_message"))))),
            ("accepted", moment(self.run["created_at"])),
            ("started", moment(self.run.get("started_at"))),
            ("ended", moment(self.run["ended_at"])),
            ("note", self.run.get("note")),
            ("labels", " ".join(f"{key}={value}" for key, value in (self.run.get("labels") or {}).items())),
            ("spec", self.run.get("spec_path")),
            ("preset", config.get("preset")),
            (
                "dataset",
                f"{self.head['test_cases_path']} ({', '.join(filter(None, (dataset['format'], size)))}{skipped})",
            ),
            ("dataset id", dataset["dataset_id"]),
            ("dataset SHA-256", dataset["sha256"]),
            ("selection", self.selection()),
            ("warnings of the dataset", "\n".join(dataset.get("warnings") or ())),
            ("agent", f"{agent['adapter']} {agent['target']}".strip()),
            ("model", model),
            ("prompt", self.head.get("prompt_path")),
            ("agent's options", _json(options)),
            ("agent's code", code_text(self.run.get("code"))),
            ("runs of each case", config["repeats"]),
            *self._sources_of_metrics(),
            *self._judge_rows(judges),
            ("rubrics", ", ".join(dict.fromkeys(m["rubric"] for m in config.get("metrics") or () if m.get("rubric")))),
            ("recorded verdicts", ", ".join(filter(None, (judge.get("recorded_file") for judge in judges)))),
            ("judge's fingerprints", "\n".join(judging.get("fingerprints") or ())),
            ("Assay", self.run["assay_version"]),
        ]
        return [(name, str(value)) for name, value in entries if value not in (None, "")]

    @staticmethod
    def _judge_rows(judges: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
        """Return the models of each judge, by its name if there are several."""
        models = {
            judge["name"]: " + ".join(f"{member['provider']} {member['model']}".strip() for member in judge["members"])
            for judge in judges
        }
        return [(f"judge {name}" if len(judges) > 1 else "judge", text) for name, text in models.items()]

    def _sources_of_metrics(self) -> list[Pair]:
        """Return the parameters of each metric and the sources of its scores."""
        entries = []
        for metric in self.head["config"]["metrics"]:
            sources = self._figures.sources.get(metric["name"], {})
            parts = [f"{key} {', '.join(values)}" for key, values in sources.items()]
            kind = metric.get("kind")
            parts += [f"metric {kind}"] if kind and kind != metric["name"] else []
            parameters = {key: value for key, value in metric["parameters"].items() if value is not None}
            parts += [json.dumps(parameters, ensure_ascii=False)] if parameters else []
            entries.append((f"metric {metric['name']}", "\n".join(parts) or "no parameters"))
        return entries

    def case_line(self, line: CaseLine) -> dict[str, Any]:
        """Return a line of the list of cases, for readers without JavaScript."""
        return {
            "case_id": line.case_id,
            "question": line.question,
            "category": line.category,
            "kind": outcome_of_case(line.outcomes),
            "outcome": outcome_text(line.outcomes, line.status),
            "values": [value_text(self.units[name], _mean(line.values.get(name, []))) for name in self.results],
            "latency": seconds_text(_mean([latency_ms / 1000 for latency_ms in line.latencies_ms])),
        }


def outcome_of_case(outcomes: Sequence[str]) -> str:
    """Return the worst of several outcomes: failed, agent error, undecided, no verdict, passed."""
    order = ("failed", "agent_error", "undecided", "no_verdict", "passed")
    return next(outcome for outcome in order if outcome in outcomes)


def outcome_text(outcomes: Sequence[str], status: str) -> str:
    """Return the outcomes of a case's repeats in words; for a single row that waits for a person, its status."""
    if len(outcomes) == 1:
        return status if status == AgentStatus.INTERRUPTED else OUTCOME_NAMES[outcomes[0]]
    return f"{outcomes.count('passed')} of {len(outcomes)} passed"


def moment(text: str | None) -> str:
    """Return a time in UTC to the second; empty if there is none."""
    if not text:
        return ""
    try:
        return f"{datetime.fromisoformat(text):%Y-%m-%d %H:%M:%S} UTC"
    except ValueError:
        return text


def _scale(result: Mapping[str, Any], shown: Sequence[float]) -> tuple[float, float]:
    """Return the values at the ends of a metric's bar: its bounds, or else the range of the values shown."""
    info = METRICS[result["kind"]].info if result.get("kind") in METRICS else None
    low, high = (info.scale if info else None) or (0.0, 1.0 if result.get("unit") == "%" else 0.0)
    if low < 0 <= min(shown):
        low = 0.0  # similarities are rarely negative, and bars that begin at 0 are easier to compare
    if high > low:
        return low, high
    return min(0.0, *shown), max(shown) * 1.1 or 1.0


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False) if value else ""
