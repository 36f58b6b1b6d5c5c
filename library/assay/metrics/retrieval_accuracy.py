r"""Retrieval accuracy: whether the right table was queried and returned data.

    value = 1 when at least two of three checks hold, else 0

The checks: the SQL holds the word SELECT; it names an expected table as a whole identifier, quotes and
brackets aside; it returned at least one row. Comments and string literals are not looked at, but for the name of a
file after FROM or JOIN. Case never matters. A quoted identifier ends with its quotes or at a
dot: `my-table` is not in `` `my-table-2` ``. A case says which tables are right in its field `expected_table`, one
name or a list; without one the second check fails and the detail notes `expected_table_missing`. A case of the
category `out_of_scope` has no table to hit: its value is 1 exactly when no SELECT was issued, no row came back and
the agent did not fail. An agent error is computed from what the row holds. A row passes with 1. The aggregate is the
mean; a threshold applies to it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from assay.metrics.core.explanations import listed, quoted
from assay.metrics.core.info import MetricInfo, Parameter
from assay.metrics.core.threshold_metric import RightFold, ThresholdMetric
from assay.text.equality import composed
from assay.text.folding import containment_work

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.metrics.core.score import Row
    from assay.model.case import Case
    from assay.model.run import Score

INFO = MetricInfo(
    "retrieval_accuracy",
    "Retrieval accuracy",
    "Whether the SQL asked the right table and data came back.",
    (Parameter("threshold", "number", None, "Least share of right rows of the run.", 0.0, 1.0),),
    reads=("sql", "data_rows", "status", "category", "expected_table"),
    decides="always",
    values="0 or 1",
    unit="%",
    stats=("right", "total"),
)

_SELECT = re.compile(r"\bselect\b")
_QUOTES = re.compile(r'["`\[\]]')
# A comment of MySQL has a space behind its #, or it would be a temporary table of SQL Server. Comments of PostgreSQL
# and SQL Server have comments in them; where those do not end, the first end counts, as in MySQL.
_COMMENT = r"--[^\n]*|\#[ \t][^\n]*|/\*(?:(?!/\*|\*/).|/\*(?:(?!/\*|\*/).)*\*/)*\*/|/\*(?:.*?\*/|.*)"
_LITERAL, _ESCAPING_LITERAL = r"'[^']*(?:'|\Z)", r"'(?:[^'\\]|\\.)*(?:'|\Z)"


def _pieces(literal: str) -> re.Pattern[str]:
    return re.compile(
        rf"(?P<comment>{_COMMENT})"
        rf"|(?P<literal>(?<=\be){_ESCAPING_LITERAL}|{literal}|(?<![\w$])\$(\w*)\$(?:.*?\$\3\$|.*))"
        r"""|"[^"\n]*"|`[^`\n]*`|\[[^\[\]\n]*\]""",
        re.DOTALL,
    )


_PIECES, _ESCAPING_PIECES = _pieces(_LITERAL), _pieces(_ESCAPING_LITERAL)
_BEFORE_FILE = re.compile(r"(?<!distinct)\s(?:from|join)\s+\Z")
"""The tokens before a literal that is a table: DuckDB reads files by their names."""
_IN_FUNCTION = re.compile(r"\((?![^()]*\bselect\b)[^()]*\sfrom\s+\Z")
"""The tokens before the text of which `substring` or `trim` takes a part."""
_POINTS_NEEDED = 2


def is_out_of_scope(case: Case) -> bool:
    """Return whether the right behaviour on a case is to refuse: its category is `out_of_scope`."""
    return case.category.strip().lower() == "out_of_scope"


class RetrievalAccuracy(ThresholdMetric):
    """Parameters: `threshold` (on the mean)."""

    info = INFO
    fold_class = RightFold

    def work(self, row: Row) -> int:
        """Return an upper bound of the work of looking for the tables' names."""
        return containment_work(row.response.sql or "", _expected_tables(row.case))

    def score(self, row: Row) -> Score:
        """Return 1 or 0."""
        sql = composed(row.response.sql or "").lower()
        detail: dict[str, Any] = {
            "version": self.version,
            "points": None,
            "has_select": "select" in sql and _SELECT.search(_read_sql(sql)[0]) is not None,
            "names_table": None,
            "has_rows": (row.response.data_rows or 0) > 0,
            "expected_tables": _given_tables(row.case),
        }
        if is_out_of_scope(row.case):
            return self._refusal(row, detail)
        tables = _expected_tables(row.case)
        detail["names_table"] = _names_any(sql, tables)
        detail["points"] = detail["has_select"] + detail["names_table"] + detail["has_rows"]
        if not tables:
            detail["note"] = "expected_table_missing"
        if detail["points"] >= _POINTS_NEEDED:
            return self._checked(True, "", detail)
        failed = row.response.is_failed
        reason = "agent_error" if failed else _failures(detail)
        return self._checked(False, reason, detail)

    def explain(self, row: Row, score: Score) -> str:
        """Return what was expected of the SQL, and the SQL."""
        detail, sql = score.detail, f"the SQL is {quoted(row.response.sql or '')}"
        if score.reason == "data_was_fetched":
            return f"the question is out of scope, and data was fetched for it; {sql}"
        due = listed(detail["expected_tables"])
        faults = (
            ("has_select", "the SQL has no SELECT"),
            ("names_table", f"the SQL names no expected table ({due})" if due else "the case names no expected table"),
            ("has_rows", "no rows came back"),
        )
        return "; ".join([*(fault for check, fault in faults if not detail[check]), sql])

    def _refusal(self, row: Row, detail: dict[str, Any]) -> Score:
        if row.response.is_failed:
            return self._checked(False, "agent_error", detail)
        if detail["has_select"] or detail["has_rows"]:
            return self._checked(False, "data_was_fetched", detail)
        return self._checked(True, "", detail)


def _failures(detail: Mapping[str, Any]) -> str:
    reasons = (("has_select", "no_select"), ("names_table", "table_not_named"), ("has_rows", "no_rows"))
    return ", ".join(reason for check, reason in reasons if not detail[check])


def _expected_tables(case: Case) -> list[str]:
    """Return the names that are right, without quotes and in lower case; blank ones match nothing."""
    return [plain for name in _given_tables(case) if (plain := _plain(name))]


def _given_tables(case: Case) -> list[str]:
    given = case.expected.get("expected_table")
    names = given if isinstance(given, list | tuple) else [given]
    return [name for name in names if isinstance(name, str)]


def _names_any(sql: str, tables: list[str]) -> bool:
    if not tables:
        return False
    text, quoted = _read_sql(sql)
    return any(
        not (_is_inside(quoted, match.start()) or _is_inside(quoted, match.end()))
        for table in tables
        if table in text
        for match in _identifier(table).finditer(text)
    )


def _read_sql(sql: str) -> tuple[str, str]:
    """Return the SQL without quotes, comments and literals, and a text of the same length: "q" for what was quoted."""
    texts, marks, end = [], [], 0
    pieces = list(_PIECES.finditer(sql))
    if "\\'" in sql and any(map(_is_unclosed, pieces)):
        pieces = list(_ESCAPING_PIECES.finditer(sql))  # of MySQL and BigQuery
    for piece in pieces:
        before, text = _QUOTES.sub("", sql[end : piece.start()]), " "
        is_file = piece["literal"] is not None and _is_file(sql[max(0, piece.start() - 40) : piece.start()])
        if is_file or (piece["comment"] is None and piece["literal"] is None):
            text = _QUOTES.sub("", piece[0].strip("'"))
        texts += [before, text]
        # A dot between quotes separates names, as in `project.dataset.table`.
        marks += [" " * len(before), " " if text == " " else re.sub(r"[^.]", "q", text)]
        end = piece.end()
    texts.append(_QUOTES.sub("", sql[end:]))
    return "".join(texts), "".join([*marks, " " * len(texts[-1])])


def _is_unclosed(piece: re.Match[str]) -> bool:
    literal = piece["literal"] or ""
    return literal.startswith("'") and (len(literal) == 1 or not literal.endswith("'"))


def _is_file(before: str) -> bool:
    """Return whether a literal is the name of a file, judged by the tokens before it."""
    return _BEFORE_FILE.search(before) is not None and _IN_FUNCTION.search(before) is None


def _is_inside(quoted: str, position: int) -> bool:
    """Return whether a position is between two characters of one quoted name."""
    return quoted[max(0, position - 1) : position + 1] == "qq"


@lru_cache(maxsize=512)
def _plain(name: str) -> str:
    return _QUOTES.sub("", composed(name)).strip().lower()


@lru_cache(maxsize=512)
def _identifier(name: str) -> re.Pattern[str]:
    # `$` is part of identifiers in most dialects; a dot is not: schema.table names the table. A hyphen is part of
    # names where the expected name has one.
    part = r"[\w$-]" if "-" in name else r"[\w$]"
    return re.compile(rf"(?<!{part}){re.escape(name)}(?!{part})")
