"""`assay score`: compute one metric for a text or a file of answers, without a run."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from assay.datasets.choices import ON_BAD_CASE
from assay.errors import InvalidInputError, Problem
from assay.metrics.core.explanations import score_message
from assay.metrics.core.info import RULE_SIGNS
from assay.model.answers.response_limits import MAX_ANSWER_BYTES
from assay.reports.words.metric_text import number_text
from assay.text.unsafe_text import clean, json_text, shorten, without_commands
from assay_cli.exit_status import EXIT_GATE, EXIT_INFRASTRUCTURE, EXIT_USAGE, with_status
from assay_cli.options.shared import check_address, debug_option, json_option, print_warnings
from assay_cli.output.documents import print_document, record, with_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from assay.datasets import Dataset
    from assay.metrics.core.info import MetricInfo
    from assay.model.run import MetricSummary, Score
    from assay.scoring.scorer import Scorer

_STDIN = "stdin"
_ID_WIDTH = 28
_REASON_WIDTH = 200


@click.command(
    epilog="Nothing is stored, and no judge is called. For several metrics, gates, a judge, reports or comparisons, "
    "use `assay run` with the replay adapter; docs/scoring.md says when to use which."
)
@click.argument("metric")
@click.argument("text", required=False)
@click.argument("right", required=False, metavar="[REFERENCE]")
@click.option("--answer", metavar="TEXT", help="Answer to score; - reads it from stdin; default: the argument TEXT.")
@click.option(
    "--reference",
    "references",
    multiple=True,
    metavar="TEXT",
    help="Reference answer; repeatable: any of them counts as correct.",
)
@click.option(
    "--field", "fields", multiple=True, metavar="KEY=VALUE", help="Field of the case or of the answer; repeatable."
)
@click.option("--set", "parameters", multiple=True, metavar="KEY=VALUE", help="Parameter of the metric; repeatable.")
@click.option(
    "--threshold",
    type=float,
    help="Score that passes, with exit status 1 below it; default: the metric's, without effect on the exit status.",
)
@click.option(
    "--file",
    "path",
    metavar="FILE",
    help="Score every row of this dataset with recorded answers, - for JSON on stdin; default: score one answer.",
)
@click.option("--map", "mapping", multiple=True, metavar="FIELD=NAME", help="Name of a field in the file; repeatable.")
@click.option("--encoding", metavar="NAME", help="Encoding of the file; default: UTF-8.")
@click.option(
    "--on-bad-case",
    type=click.Choice(ON_BAD_CASE),
    help="Refuse a file with bad records, or skip and list them; default: refuse.",
)
@click.option(
    "--embedder",
    metavar="HOST:PORT",
    envvar="ASSAY_EMBEDDER",
    callback=check_address,
    help="Embedder to use; default: $ASSAY_EMBEDDER, else a local one.",
)
@json_option
@debug_option
def score(
    metric: str,
    text: str | None,
    right: str | None,
    answer: str | None,
    references: tuple[str, ...],
    fields: tuple[str, ...],
    parameters: tuple[str, ...],
    threshold: float | None,
    path: str | None,
    mapping: tuple[str, ...],
    encoding: str | None,
    on_bad_case: str | None,
    embedder: str | None,
    as_json: bool,
) -> int:
    """Score the answer TEXT against REFERENCE with METRIC, or every row of a file.

    METRIC is a name from `assay metrics list`, with - or _, or a short name: similarity, fidelity, retrieval, combined,
    judge. TEXT may be - to read the answer from stdin; FILE may be - to read JSON or JSON Lines.

    \b
        assay score similarity "We open at nine." "Opening is at 9 am."
        assay score retrieval --field sql="SELECT * FROM events" --field data_rows=3 --field expected_table=events
        assay score rouge --file answers.jsonl --threshold 0.5
    """
    problems: list[Problem] = []
    parameters_by_name = _pairs(parameters, "--set", problems)
    if threshold is not None:
        parameters_by_name["threshold"] = threshold
    values = _pairs(fields, "--field", problems)
    answers = [answer_text for answer_text in (text, answer) if answer_text is not None]
    references_given = [*([right] if right is not None else []), *references]
    if path is None:
        problems += _answer_problems(answers, values)
        if text is not None and not references_given and _is_dataset_name(text):
            hint = f"looks like the name of a file: score its rows with --file {shlex.quote(text)}"
            problems.append(Problem(f"{hint}, or the text itself with --answer", "the answer"))
        problems += [
            Problem("needs --file", name)
            for name, value in (("--map", mapping), ("--encoding", encoding), ("--on-bad-case", on_bad_case))
            if value
        ]
    elif answers or references_given or values:
        problems.append(Problem("takes answers and references from the file: leave out the texts", "--file"))
    scorer = _scorer(metric, parameters_by_name, embedder, problems)
    field_map = {name: str(value) for name, value in _pairs(mapping, "--map", problems).items()}
    if problems or scorer is None:
        raise InvalidInputError(problems)
    with scorer:
        if path is not None:
            from assay.scoring.inputs import answered_file

            with _spooled(path) as found_path:
                shown = _STDIN if path == "-" else path
                dataset = answered_file(
                    found_path,
                    field_map=field_map,
                    encoding=encoding,
                    shown_as=shown,
                    on_bad_case=on_bad_case or ON_BAD_CASE[0],
                )
                return _score_file(scorer, dataset, gated="threshold" in parameters_by_name, as_json=as_json)
        text = _text(answers[0]) if answers else ""
        result = scorer.score(text, references_given or None, **values)
    gated = "threshold" in parameters_by_name
    _print_one(scorer, result, gated=gated, as_json=as_json)
    return _ended(scorer, _status(scorer, [result], gated=gated), is_said=gated and not as_json)


def _answer_problems(answers: Sequence[str], values: dict[str, Any]) -> list[Problem]:
    if len(answers) > 1:
        return [Problem("is given twice, as an argument and with --answer: leave one out", "the answer")]
    if not answers and not values:
        return [Problem("is missing: give a text, - to read it from stdin, or --file", "the answer")]
    return []


def _is_dataset_name(text: str) -> bool:
    """Return whether a text looks like a dataset's file name; an answer is hardly a single word that ends in .jsonl."""
    from assay.datasets.readers.detection import SUFFIXES

    return len(text.split()) == 1 and text.lower().removesuffix(".gz").endswith(SUFFIXES)


def _scorer(metric: str, parameters: dict[str, Any], embedder: str | None, problems: list[Problem]) -> Scorer | None:
    from assay.scoring.scorer import Scorer

    try:
        return Scorer(metric, parameters, embedder=embedder)
    except InvalidInputError as error:
        problems += error.problems
    return None


def _pairs(options: Sequence[str], option: str, problems: list[Problem]) -> dict[str, Any]:
    """Parse KEY=VALUE options; values are YAML as in a spec, or else plain text."""
    from assay.parsing.yaml_nodes import YamlSyntaxError, parse_scalar

    pairs: dict[str, Any] = {}
    for item in options:
        key, sign, text = item.partition("=")
        key = key.strip()
        if not sign or not key:
            problems.append(Problem(f"must be KEY=VALUE, not {item[:60]!r}", option))
            continue
        try:
            # A value may be invalid YAML on purpose: SQL, for example, contains YAML's special characters.
            pairs[key] = text if key in ("sql", "question", "input") else parse_scalar(text)
        except YamlSyntaxError:
            pairs[key] = text
    return pairs


def _text(answer: str) -> str:
    """Return the answer; `-` reads stdin.

    Raises:
        InvalidInputError: The input is too large, or not text.
    """
    if answer != "-":
        return answer
    data = sys.stdin.buffer.read(MAX_ANSWER_BYTES + 1)
    if len(data) > MAX_ANSWER_BYTES:
        raise InvalidInputError(
            [Problem(f"holds more than {MAX_ANSWER_BYTES // 1024**2} MiB, too much for an answer: shorten it", _STDIN)]
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInputError([Problem(f"is not UTF-8 (byte {error.start}): convert it", _STDIN)]) from None
    return text.removesuffix("\n").removesuffix("\r")  # `echo` adds a line end that is not part of the answer


def _print_one(scorer: Scorer, result: Score, *, gated: bool, as_json: bool) -> None:
    if as_json:
        document = {"metric": result.metric, **_document(result), "parameters": dict(scorer.parameters)}
        print_document("score", document)
        return
    verdict = _verdict(result, gated=gated)
    click.echo("  ".join(part for part in (result.metric, _value(scorer.info, result), verdict) if part))
    for name, value in result.detail.items():
        if name != "version":
            shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            click.echo(without_commands(f"  {clean(name)}  {shorten(shown, 200)}"))


@contextmanager
def _spooled(path: str) -> Iterator[Path]:
    """Yield the path of the file, or of a copy of stdin for `-`, since a dataset is read twice."""
    if path != "-":
        yield Path(path)
        return
    with tempfile.TemporaryDirectory(prefix="assay-") as folder:
        file = Path(folder, _STDIN)
        with file.open("wb") as target:
            shutil.copyfileobj(sys.stdin.buffer, target)
        yield file


def _score_file(scorer: Scorer, dataset: Dataset, *, gated: bool, as_json: bool) -> int:
    from assay.scoring.inputs import check_answered

    info = check_answered(dataset)
    print_warnings(info)
    scores = _print_json(scorer, dataset, info.left_out_count) if as_json else _print_rows(scorer, dataset, gated=gated)
    status = _status(scorer, scores, gated=gated)
    if info.left_out_count and not status:
        click.echo("incomplete: bad records of the file were left out, see above", err=True)
        status = EXIT_INFRASTRUCTURE
    return _ended(scorer, status, is_said=gated and not as_json)


def _ended(scorer: Scorer, status: int, *, is_said: bool) -> int:
    """Return the exit status; with a threshold, print it in the last line."""
    if is_said:
        summary = scorer.summary()
        word = {0: "PASS", EXIT_GATE: "FAIL"}.get(status, "INCOMPLETE")
        bound = f"threshold {RULE_SIGNS[summary.rule]} {summary.threshold:g}" if summary.threshold is not None else ""
        click.echo(with_status(f"verdict  {word}  {bound}".rstrip(), status))
    return status


def _print_json(scorer: Scorer, dataset: Dataset, left_out_count: int) -> Sequence[Score]:
    reasons: list[Score] = []
    # All or nothing: an embedder that fails half-way must not leave half a document.
    with tempfile.SpooledTemporaryFile(max_size=8_000_000, mode="w+", encoding="utf-8") as file:
        head = {
            "metric": scorer.info.name,
            "parameters": dict(scorer.parameters),
            "left_out_count": left_out_count,
        }
        file.write(json_text(with_schema("scores", head), indent=1).removesuffix("\n}") + ',\n "rows": [')
        separator = "\n  "
        for row in scorer.rows(dataset.cases()):
            line = json_text({"case_id": row.case_id, **_document(row.score)})
            file.write(separator + line)
            separator = ",\n  "
            _keep(reasons, row.score)
        summary = json_text(record(scorer.summary()))
        file.write(f'\n ],\n "summary": {summary}\n}}\n')
        file.seek(0)
        while piece := file.read(1_000_000):
            click.echo(piece, nl=False)
    return reasons


def _print_rows(scorer: Scorer, dataset: Dataset, *, gated: bool) -> Sequence[Score]:
    reasons: list[Score] = []
    for row in scorer.rows(dataset.cases()):
        name = shorten(row.case_id, _ID_WIDTH)
        line = f"{name:<{_ID_WIDTH}}  {_value(scorer.info, row.score):>10}  {_verdict(row.score)}"
        click.echo(without_commands(line.rstrip()))
        _keep(reasons, row.score)
    click.echo("\n" + _summary_line(scorer.summary(), gated=gated))
    return reasons


def _keep(reasons: list[Score], score: Score) -> None:
    """Keep the first score per reason, to explain why nothing was scored."""
    if score.value is None and all(score.reason != earlier.reason for earlier in reasons):
        reasons.append(score)


def _status(scorer: Scorer, scores: Sequence[Score], *, gated: bool) -> int:
    """Return the exit status: 1 below a given threshold, or if nothing was scored."""
    summary = scorer.summary()
    if summary.scored_count == 0 and not summary.failed_count:
        why = ", ".join(dict.fromkeys(score_message(result) for result in scores if result.reason)) or "no value"
        reads = ", ".join(scorer.info.reads)
        click.echo(f"error: nothing was scored ({why}); {summary.metric} reads {reads}", err=True)
        return EXIT_INFRASTRUCTURE if summary.own_error_count else EXIT_USAGE
    if not gated:
        return 0
    if summary.own_error_count:
        click.echo(f"error: {summary.metric} could not be computed on {summary.own_error_count} rows", err=True)
        return EXIT_INFRASTRUCTURE
    if summary.meets_threshold is None:
        why = "its threshold needs several runs of each case: use `assay run --repeats 3`"
        click.echo(f"error: {summary.metric} has a value and no verdict: {why}", err=True)
        return EXIT_USAGE
    return 0 if summary.meets_threshold else EXIT_GATE


def _value(info: MetricInfo, score: Score) -> str:
    if score.value is None:
        return score.status.value
    return number_text(score.value) + (f" {info.unit}" if info.unit not in ("", "%") else "")


def _verdict(score: Score, *, gated: bool = True) -> str:
    word = {True: "passed", False: "failed", None: ""}[score.passed]
    threshold = score.detail.get("threshold")
    bound = f"(threshold {threshold:g})" if isinstance(threshold, int | float) else ""
    if bound and not gated:
        bound = f"(default threshold {threshold:g}, not gated)"  # it does not affect the exit status
    return "  ".join(part for part in (word, bound, shorten(score_message(score), _REASON_WIDTH)) if part)


def _document(score: Score) -> dict[str, Any]:
    return {
        "value": score.value,
        "status": score.status.value,
        "passed": score.passed,
        "reason": score.reason or None,
        "message": score_message(score) or None,
        "detail": dict(score.detail),
    }


def _summary_line(summary: MetricSummary, *, gated: bool) -> str:
    value = "-" if summary.value is None else number_text(summary.value)
    parts = [f"{summary.metric}  {value}", f"scored {summary.scored_count}"]
    parts += [
        f"{name} {count}"
        for name, count in (("skipped", summary.skipped_count), ("errors", summary.error_count))
        if count
    ]
    if summary.passed_count + summary.failed_count:
        parts += [f"passed {summary.passed_count}", f"failed {summary.failed_count}"]
    if summary.threshold is not None:
        bound = f"threshold {RULE_SIGNS[summary.rule]} {summary.threshold:g}"
        reached, missed = ("PASS", "FAIL") if gated else ("reached", "missed")
        mark = {True: reached, False: missed, None: "no verdict"}[summary.meets_threshold]
        text = f"{bound} {mark}"
        parts.append(text if gated else f"default {text} (not gated: --threshold decides)")
    return "  ".join(parts)
