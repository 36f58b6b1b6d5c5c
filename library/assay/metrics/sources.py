"""Sources: whether the answer names the required sources.

    sources = 1 when at least `at_least` sources count and each of `required` is among them, else 0

With `pattern`, only sources whose title, address or id it is found in count; without, all that name something. Two
sources with the same names are one. A source is a required one as for hit_rate: by its title, its address or its id,
without regard to case, underscores and spacing. An answer without sources is 0, and so is an agent error, whatever it
named. Of a conversation, the last answer counts. A row passes with 1. The aggregate is the share of rows; a threshold
applies to it.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from assay.metrics.checks.patterns import compile_pattern, pattern_problem, pattern_size, search_work
from assay.metrics.core.explanations import listed, source_name
from assay.metrics.core.info import MetricInfo, Parameter
from assay.metrics.core.source_matching import matching_work, names_something, unmatched, unread_names
from assay.metrics.core.threshold_metric import ShareFold, ThresholdMetric

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.metrics.core.score import Row
    from assay.model.answers.agent_response import Source
    from assay.model.run import Score

INFO = MetricInfo(
    "sources",
    "Sources",
    "Whether the answer names the sources that every answer should name.",
    (
        Parameter("at_least", "integer", 1, "How many sources count at least.", 0, 10_000),
        Parameter("required", "text_list", [], "Titles, addresses or ids, each of which the answer names."),
        Parameter("pattern", "text", None, "A pattern (RE2) of the sources that count; none for all."),
        Parameter("threshold", "number", None, "Least share of the run's rows.", 0.0, 1.0),
    ),
    reads=("sources",),
    decides="always",
    values="0 or 1",
    unit="%",
)
_MOST_NAMED = 20


class Sources(ThresholdMetric):
    """Parameters: `at_least`, `required`, `pattern`, `threshold` (on the share)."""

    info = INFO
    fold_class = ShareFold

    def __init__(self, name: str, parameters: Mapping[str, Any]) -> None:
        super().__init__(name, parameters)
        self._at_least: int = parameters["at_least"]
        self._required: list[str] = parameters["required"]
        self._pattern: str | None = parameters["pattern"]

    @staticmethod
    def check(parameters: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Return what is wrong with the pattern, or with names that name nothing."""
        problems = [
            (f"required[{index}]", f"names no source: {name[:60]!r}")
            for index, name in enumerate(parameters["required"])
            if not names_something(name)
        ]
        if not parameters["at_least"] and not parameters["required"]:
            problems.append(("at_least", "demands nothing with 0 and no `required`"))
        if parameters["pattern"] is not None and (problem := pattern_problem(parameters["pattern"])):
            problems.append(("pattern", problem))
        return problems

    def work(self, row: Row) -> int:
        """Return an upper bound of the work of looking at the sources."""
        work = 2 * matching_work(row)
        if self._pattern is None:
            return work
        chars = sum([len(name) for source in row.response.sources for name in _names(source)])
        return work + search_work(pattern_size(self._pattern), chars)

    def score(self, row: Row) -> Score:
        """Return 1 or 0."""
        counted = list(dict.fromkeys(names for source in row.response.sources if (names := self._counted(source))))
        missing = unmatched(self._required, row.response.sources)
        detail: dict[str, Any] = {
            "version": self.version,
            "sources": len(row.response.sources),
            "counted": len(counted),
        }
        faults = []
        if len(counted) < self._at_least:
            what = "sources that match the pattern" if self._pattern is not None else "sources"
            faults.append(("too_few_sources", f"{len(counted):,} {what}, fewer than {self._at_least:,}"))
        if missing:
            detail["missing"] = missing[:_MOST_NAMED]
            faults.append(("source_missing", f"missing source {listed(missing)}"))
        if row.response.is_failed:
            return self._checked(False, "agent_error", detail)
        if faults and (unread := unread_names(missing, row.response, row.response.sources)):
            return self._not_computed("sources_without_names", detail, message=unread)
        if not faults:
            return self._checked(True, "", detail)
        given = f"the answer names {listed(map(source_name, row.response.sources)) or 'none'}"
        message = "; ".join([*(message for _, message in faults), given])
        return dataclasses.replace(self._checked(False, faults[0][0], detail), message=message)

    def _counted(self, source: Source) -> tuple[str, ...]:
        """Return the names of a source that counts; nothing for another."""
        names = _names(source)
        if self._pattern is None:
            return names if any(map(names_something, names)) else ()
        compiled = compile_pattern(self._pattern)
        return names if any(compiled.search(name) is not None for name in names) else ()


def _names(source: Source) -> tuple[str, ...]:
    return tuple(name for name in (source.title, source.uri, source.id) if name)
