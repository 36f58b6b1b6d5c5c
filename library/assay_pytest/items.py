"""Items of an evaluation: cases, gates and the verdict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from assay.errors import AssayError
from assay.model.answers.agent_response import FAILED_STATUSES
from assay.model.interval import Interval
from assay.text.unsafe_text import clean, shorten
from assay_pytest.evaluation import MarkedEvaluation
from assay_pytest.state import state_of

if TYPE_CHECKING:
    from assay.reports.document.report import Report
    from assay_pytest.evaluation import Case

_TEXT_CHARS = 2_000


def items_of(collector: pytest.Module | pytest.Class, name: str, mark: pytest.Mark) -> list[pytest.Item]:
    """Return the items of a marked function's evaluation: cases, gates and the verdict.

    Raises:
        pytest.Collector.CollectError: The marker, the spec or its dataset is wrong.
    """
    evaluation = _evaluation(collector, mark)
    items: list[EvaluationItem] = [
        CaseItem.from_parent(collector, name=_id(name, case_id), case_id=case_id) for case_id in evaluation.case_ids
    ]
    items += [
        GateItem.from_parent(collector, name=_id(name, f"gate {gate}"), index=index, expression=gate)
        for index, gate in enumerate(evaluation.gates)
    ]
    items.append(VerdictItem.from_parent(collector, name=_id(name, "verdict")))
    for item in items:
        item.evaluation = evaluation
        item.add_marker(pytest.mark.assay(*mark.args, **mark.kwargs))
    return [*items]


def _evaluation(collector: pytest.Module | pytest.Class, mark: pytest.Mark) -> MarkedEvaluation:
    where = f"{collector.nodeid}: @pytest.mark.assay"
    if len(mark.args) != 1 or not mark.kwargs.keys() <= {"agent", "server"}:
        raise collector.CollectError(f"{where} takes the path of a spec, and the options agent and server")
    spec = _spec_path(collector, mark.args[0])
    agent, server = mark.kwargs.get("agent"), mark.kwargs.get("server")
    key = (spec, agent, server)
    state = state_of(collector.config)
    evaluations = state.evaluations
    if key not in evaluations:
        try:
            evaluations[key] = MarkedEvaluation(spec, agent, server, len(evaluations), state.closing)
        except AssayError as error:
            raise collector.CollectError(f"{where}: {error.message}") from None
    return evaluations[key]


def _spec_path(collector: pytest.Module | pytest.Class, reference: Any) -> Path:
    """Return the path of a spec, relative to the folder of the test file or else to the root of the tests."""
    path = Path(reference)
    beside = collector.path.parent / path
    return (
        beside
        if beside.exists() or not (collector.config.rootpath / path).exists()
        else (collector.config.rootpath / path)
    )


def _id(name: str, kind: str) -> str:
    return f"{name}[{shorten(kind, None)}]"  # uncut: two cases may differ only at the end of their ids


def report_of(request: pytest.FixtureRequest) -> Report:
    """Return the report of the evaluation that a test's marker names; the fixture `assay_run`."""
    mark = request.node.get_closest_marker("assay")
    if mark is None:
        raise pytest.UsageError("the fixture assay_run needs @pytest.mark.assay(SPEC) on its test")
    return _evaluation(request.node.getparent(pytest.Module), mark).report(request.config)


class EvaluationItem(pytest.Item):
    """An item of an evaluation."""

    evaluation: MarkedEvaluation

    def report(self) -> Report:
        """Return the report of the evaluation; the first item runs it."""
        return self.evaluation.report(self.config)

    def setup(self) -> None:
        """Refuse a rerun by pytest-rerunfailures."""
        if getattr(self.config.option, "reruns", None) or self.get_closest_marker("flaky") is not None:
            raise pytest.UsageError(
                "an evaluation is not run again until it passes: `repeats` in its spec runs each case several times"
            )

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return the failure without a traceback."""
        if isinstance(excinfo.value, AssayError | pytest.fail.Exception | pytest.UsageError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return the location of the item."""
        return self.path, None, self.name


class CaseItem(EvaluationItem):
    """Rows of a case. They fail the session only with --assay-strict; gates decide."""

    def __init__(self, *, case_id: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._case_id = case_id

    def runtest(self) -> None:
        """Report the result of the case."""
        case = self.evaluation.case(self._case_id, self.report())
        if case is None:
            pytest.fail(f"the run has no row of the case {clean(self._case_id)}: it did not finish", pytrace=False)
        self.user_properties += _properties(case)
        if case.failed or case.errors:
            description = _description(case)
            if self.config.getoption("assay_strict"):
                pytest.fail(description, pytrace=False)
            pytest.xfail(description)
        if not case.passed:
            pytest.skip("no verdict: no metric decided")


class GateItem(EvaluationItem):
    """A gate of the spec."""

    def __init__(self, *, index: int, expression: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._index, self._expression = index, expression

    def runtest(self) -> None:
        """Fail if the gate fails or could not be computed."""
        from assay.gates.gates import compared_text

        gate = self.report().head["summary"]["gates"][self._index]
        compared = compared_text(self._expression, gate["actual"], Interval.of_document(gate.get("interval")))
        actual = "" if gate["actual"] is None else f", actual {compared}"
        self.user_properties.append(("actual", gate["actual"]))
        if gate["outcome"] != "pass":
            why = "".join(f"; {clean(text)}" for text in (gate["message"], gate.get("note")) if text)
            pytest.fail(f"gate {gate['outcome'].upper()}: {clean(self._expression)}{actual}{why}", pytrace=False)


class VerdictItem(EvaluationItem):
    """The verdict of the run; it passes with PASS, or without any criteria."""

    def runtest(self) -> None:
        """Fail if the run fails."""
        head = self.report().head
        summary = head["summary"]
        self.user_properties += [("run_id", head["run"]["run_id"]), ("pass_rate", summary["pass_rate"])]
        if summary["exit_status"]:
            reasons = "; ".join(clean(reason) for reason in summary["reasons"])
            pytest.fail(f"verdict {summary['overall_status']}: {reasons}", pytrace=False)


def _properties(case: Case) -> list[tuple[str, object]]:
    """Return the mean of each metric over the repeats of a case."""
    values: dict[str, list[float]] = {}
    for row in case.rows:
        for name, score in row["scores"].items():
            if score["value"] is not None:
                values.setdefault(name, []).append(score["value"])
    return [(name, sum(scores) / len(scores)) for name, scores in values.items()]


def _description(case: Case) -> str:
    """Describe why a case failed: how often, the first reason, and its texts."""
    row = next(row for row in case.rows if row["status"] in FAILED_STATUSES or row["passed"] is False)
    count = len(case.rows)
    often = f"{case.failed + case.errors} of {count} runs failed: " if count > 1 else ""
    error = row["response"].get("error") or {}
    why = error.get("message") or row["message"] or "failed"
    lines = [f"{often}{shorten(why, _TEXT_CHARS)}"]
    for label, text in (("asked", row["question"]), ("got", row["answer"]), ("want", " | ".join(row["references"]))):
        if text:
            lines.append(f"{label + ':':6} {shorten(text, _TEXT_CHARS)}")
    return "\n".join(lines)
