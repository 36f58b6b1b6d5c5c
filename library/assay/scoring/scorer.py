"""Scoring without an agent and without a run: `assay.score`, `assay.score_many`, `assay.score_file`.

The same metrics with the same parameters as in a run, on answers that are there already. `docs/scoring.md` says
more.
"""

from __future__ import annotations

import dataclasses
import itertools
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.datasets.fields.aliases import ALIASES
from assay.datasets.warnings import warn_of_dataset
from assay.errors import DatasetError, InvalidInputError, Problem, SpecError
from assay.metrics import METRICS, build_metric, complete_parameters, metric_kind
from assay.metrics.core.evidence import wanted_texts
from assay.metrics.core.row_verdict import row_message, row_verdict
from assay.metrics.core.score import Row, keeps_vector
from assay.metrics.rows.row_scores import score_row
from assay.model.answers.agent_response import AgentResponse
from assay.model.answers.answer_thoughts import with_thoughts_apart
from assay.model.run import MetricSpec, MetricSummary, RowResult, Score
from assay.model.run_spec import FUNCTION_METRIC
from assay.parsing.names import unknown_name
from assay.scoring.evidence import evidence_of, texts_of, verdicts_of, with_inputs
from assay.scoring.given_values import read_answer, read_references
from assay.scoring.inputs import BESIDE, NO_QUESTION, answered_file, answered_records, check_answered
from assay.scoring.vectors import EmbedFunction, FunctionVectors, ServiceVectors, Vectors

if TYPE_CHECKING:
    import os
    from types import TracebackType
    from typing import Self

    from assay.metrics.core.embedding import EmbeddingSettings
    from assay.metrics.core.info import MetricInfo
    from assay.model.case import Case
    from assay.scoring.vectors import Embedded

_CHUNK_ROWS = 32
_OWN_FIELDS = ("scores", "verdicts")
_ANSWER_FIELDS = (*BESIDE, "output", "error", "events", "finish_reason", "model", "reported_latency_ms",
                  "time_to_first_token_ms")  # fmt: skip
_NO_FIELDS = {*ALIASES["recorded"], *ALIASES["references"], *ALIASES["skip"], *ALIASES["threshold"], "name"}
_CASE_FIELDS = tuple(name for names in ALIASES.values() for name in names if name not in _NO_FIELDS)
_HIDDEN_FIELDS = ("expected_", "reference_", "ground_truth_")


def score(
    metric: str,
    answer: object,
    reference: object = None,
    *,
    parameters: Mapping[str, Any] | None = None,
    embed: EmbedFunction | None = None,
    embedder: str | None = None,
    **fields: Any,
) -> Score:
    """Return the score of one answer.

    Args:
        metric: The metric's name.
        answer: A text or a number, or a mapping with the fields of an answer.
        reference: The right answer, a text or a number, or a list or array of alternatives; None
            where the metric needs none.
        parameters: The metric's parameters; others have their defaults.
        embed: Returns one vector per text, for metrics that need vectors.
        embedder: Address of an embedder, "host:port" or "unix:/path"; without it and `embed` the local one is
            started for the call.
        fields: Parameters of the metric, fields of the case (`category`, `expected_table`, `expected_sources` ...)
            and of the answer (`sql`, `data_rows`, `sources`, `tool_calls`, `usage`, `latency_ms` ...); a name that
            is both a parameter and a field is the parameter.

    Raises:
        InvalidInputError: The metric, a parameter or a field is wrong; holds every problem.
        AssayError: No embedder is available.

    Example:
        >>> score("exact_match", "Al-Ula", "al ula", strip_punctuation=True).value  # doctest: +SKIP
        1.0
    """
    with Scorer(metric, parameters, embed=embed, embedder=embedder, given=fields) as scorer:
        return scorer.score(answer, reference, **scorer.other_fields(fields))


def score_many(
    metric: str,
    rows: Iterable[Any],
    *,
    parameters: Mapping[str, Any] | None = None,
    embed: EmbedFunction | None = None,
    embedder: str | None = None,
) -> list[Score]:
    """Return the scores of rows, in order; all rows are checked before the first is scored.

    Args:
        metric: The metric's name.
        rows: Objects with the fields of a case and, under `answer`, a text or an object with the fields of an
            answer; some of these may stand beside it. Or a data frame of such rows.
        parameters: Of the metric.
        embed: As for `score`; called with the texts of many rows at once.
        embedder: As for `score`.

    Raises:
        InvalidInputError: The metric, a parameter or a row is wrong; holds every problem.
        AssayError: No embedder is available.
    """
    scorer = Scorer(metric, parameters, embed=embed, embedder=embedder)
    dataset = answered_records(rows)
    with scorer:
        check_answered(dataset)
        return [row.score for row in scorer.rows(dataset.cases())]


def score_file(
    metric: str,
    path: str | os.PathLike[str],
    *,
    parameters: Mapping[str, Any] | None = None,
    field_map: Mapping[str, str] | None = None,
    encoding: str | None = None,
    on_bad_case: str = "refuse",
    embed: EmbedFunction | None = None,
    embedder: str | None = None,
) -> tuple[tuple[Score, ...], MetricSummary]:
    """Return the scores of a file's rows, in order, and their summary.

    Args:
        metric: The metric's name.
        path: A dataset with recorded answers; any format that datasets have.
        parameters: Of the metric.
        field_map: Canonical field to the file's own name for it.
        encoding: The file's encoding; None means UTF-8, or what its byte order mark says.
        on_bad_case: "refuse" a file with records that are wrong, or "skip" the records, with a warning for each.
        embed: As for `score_many`.
        embedder: As for `score`.

    Raises:
        InvalidInputError: The metric, a parameter or the file is wrong; holds every problem.
        AssayError: No embedder is available.

    Warns:
        DatasetWarning: Something about the file is odd.
    """
    with Scorer(metric, parameters, embed=embed, embedder=embedder) as scorer:
        dataset = answered_file(path, field_map=field_map, encoding=encoding, on_bad_case=on_bad_case)
        warn_of_dataset(check_answered(dataset))
        scores = tuple(row.score for row in scorer.rows(dataset.cases()))
        return scores, scorer.summary()


@dataclass(frozen=True, slots=True)
class RowScore:
    """The score of one row of a dataset."""

    case_id: str
    score: Score


class Scorer:
    """One metric with its parameters, ready for any number of answers; keeps its embedder until it is closed.

    Args:
        metric: The metric's name.
        parameters: Of the metric.
        embed: As for `score`.
        embedder: As for `score`.
        given: Names and values, those of which that are parameters of the metric are read as such.

    Raises:
        SpecError: The metric or a parameter is wrong; holds every problem.

    Example:
        >>> with Scorer("semantic_similarity") as scorer:  # doctest: +SKIP
        ...     first = scorer.score("Open from 9 to 5", "We open at nine.")
    """

    def __init__(
        self,
        metric: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        embed: EmbedFunction | None = None,
        embedder: str | None = None,
        given: Mapping[str, Any] | None = None,
    ) -> None:
        kind = metric_kind(metric)
        if kind == FUNCTION_METRIC:
            problem = (
                "is a function of your own: call it, or name it under `metrics` of a spec and run `assay run` "
                "(`assay init --metric` writes one)"
            )
            raise SpecError([Problem(problem, metric)])
        self.info: MetricInfo = METRICS[kind].info
        self._parameter_names = {parameter.name for parameter in self.info.parameters}
        wanted = {name: value for name, value in (given or {}).items() if name in self._parameter_names}
        wanted |= parameters or {}
        if embed is not None and embedder is not None:
            raise SpecError([Problem("embed and embedder are given: choose one of them", "embedder")])
        own_model = None if embed is None else f"embed:{getattr(embed, '__name__', type(embed).__name__)}"
        if own_model is not None and self.info.needs_embedder:
            # A threshold belongs to a model, so that of the default model does not apply.
            wanted.setdefault("model", own_model)
            if refused := [name for name in ("dimension", "windowed") if wanted.get(name)]:
                problem = "is for vectors of an embedder, and `embed` returns its own: leave it out"
                raise SpecError([Problem(problem, name) for name in refused])
        self.parameters: Mapping[str, Any] = complete_parameters(kind, wanted, where=kind)
        self._metric = build_metric(MetricSpec(kind, self.parameters))
        self._metrics = with_inputs(self._metric, {**wanted, "model": wanted.get("model", own_model)})
        models = sorted({metric.embedding.model for metric in self._metrics if metric.embedding is not None})
        self._vectors: Vectors = FunctionVectors(embed) if embed is not None else ServiceVectors(embedder, models)
        self._fold = self._metric.aggregate()
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the embedder."""
        self._vectors.close()

    def other_fields(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields that are not parameters of the metric."""
        return {name: value for name, value in fields.items() if name not in self._parameter_names}

    def score(self, answer: object, reference: object = None, **fields: Any) -> Score:
        """Return the score of one answer.

        Args:
            answer: As for `assay.score`.
            reference: As for `assay.score`.
            fields: Of the case and of the answer.

        Raises:
            InvalidInputError: A field is wrong; holds every problem.
        """
        record = _record(answer, reference, fields, self._parameter_names)
        try:
            dataset = answered_records([record])
            check_answered(dataset)
            return next(self.rows(dataset.cases())).score
        except DatasetError as error:
            raise InvalidInputError([_without_record(problem) for problem in error.problems]) from None

    def rows(self, cases: Iterable[Case]) -> Iterator[RowScore]:
        """Yield the scores of recorded answers, in order.

        Args:
            cases: Cases with recorded answers.

        Raises:
            AssayError: No embedder is available.
        """
        remaining = iter(cases)
        while chunk := list(itertools.islice(remaining, _CHUNK_ROWS)):
            yield from self._chunk(chunk)

    def summary(self) -> MetricSummary:
        """Return the summary of all rows so far."""
        return self._fold.result()

    def _chunk(self, cases: Sequence[Case]) -> Iterator[RowScore]:
        pairs = [
            (case, with_thoughts_apart(answer or AgentResponse()))
            for case in cases
            for answer in (turns[-1] for turns in case.recordings or ((None,),))
        ]
        embedded = self._embed(pairs)
        for case, response in pairs:
            row = Row(case, response, evidence_of(self._metrics, case, response, embedded), verdicts_of(case))
            scores = score_row(self._metrics, row)
            self._fold.add(self._result(row, scores), scores[0])
            self._count += 1
            yield RowScore(case.case_id, scores[0])

    def _embed(self, pairs: Sequence[tuple[Case, AgentResponse]]) -> dict[tuple[EmbeddingSettings, str], Embedded]:
        """Return the vectors of all texts that some rows need, by settings and text, each text embedded once."""
        texts: dict[EmbeddingSettings, dict[str, None]] = {}
        for case, response in pairs:
            for settings, wanted in wanted_texts(self._metrics, case, response).items():
                texts.setdefault(settings, {}).update(dict.fromkeys(texts_of(wanted, response)))
        vectors: dict[tuple[EmbeddingSettings, str], Embedded] = {}
        for settings, chosen in texts.items():
            embedded = self._vectors.embed(list(chosen), settings)
            vectors |= {(settings, text): vector for text, vector in zip(chosen, embedded, strict=True)}
        return vectors

    def _result(self, row: Row, scores: Sequence[Score]) -> RowResult:
        case, response = row.case, row.response
        embedding = self._metric.embedding if keeps_vector(self._metric) else None
        evidence = row.embeddings.get(embedding) if embedding is not None else None
        vector = evidence.answer if evidence is not None else None
        return RowResult(
            case_id=case.case_id,
            case_index=self._count,
            repeat=1,
            category=case.category,
            tags=case.tags,
            weight=case.weight,
            status=response.status,
            passed=row_verdict(response.status, scores[:1]),
            scores=scores,
            latency_ms=response.latency_ms,
            message=row_message(response, scores[:1]),
            answer_vector=array("d", map(float, vector)) if vector is not None else b"",
        )


def _record(answer: object, reference: object, fields: Mapping[str, Any], parameters: Iterable[str]) -> dict[str, Any]:
    """Return the record of one answer.

    Raises:
        InvalidInputError: A field is unknown, or the answer or the reference is none.
    """
    known = (*parameters, *_OWN_FIELDS, *_CASE_FIELDS, *_ANSWER_FIELDS, "expected_table")
    problems = [
        Problem(unknown_name("field", name, known), name)
        for name in fields
        if name not in known and not name.startswith(_HIDDEN_FIELDS)
    ]
    given, references = read_answer(answer, problems), read_references(reference, problems)
    if problems:
        raise InvalidInputError(problems)
    beside = {name: value for name, value in fields.items() if name in _ANSWER_FIELDS and value is not None}
    record = {name: value for name, value in fields.items() if name not in _ANSWER_FIELDS}
    record["recorded"] = {**beside, **given}
    if references is not None:
        record["references"] = references
    if not any(name in record for key in ("input", "turns", "variables") for name in ALIASES[key]):
        record["input"] = NO_QUESTION
    if not any(name in record for name in ALIASES["id"]):
        record["id"] = "answer"
    return record


def _without_record(problem: Problem) -> Problem:
    place = problem.field.removeprefix("record 1").removeprefix(", ")
    return dataclasses.replace(problem, field="answer" if place == "recorded" else place)
