"""Write the tables of docs/statistics.md from the measured rates: `python -m benchmarks.error_rates.tables`.

A table is placed between `<!-- error rates: NAME -->` and `<!-- end -->`. `--check` writes nothing and exits with 1 if
the page differs from the rates.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RATES = ROOT / "benchmarks/results/error_rates.json"
PAGE = ROOT / "docs/statistics.md"
_TABLE = re.compile(r"(<!-- error rates: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


@dataclass(frozen=True)
class Measured:
    """A setting with its saved rates.

    Args:
        name: The drawn data.
        rates: Rates by measure.
    """

    name: dict[str, Any]
    rates: dict[str, dict[str, Any]]


Show = Callable[[Sequence[Measured]], str]
"""Formats a cell from the settings of a row."""


def main() -> None:
    """Write the tables, or check them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    text = PAGE.read_text(encoding="utf-8")
    renewed = with_tables(text, json.loads(RATES.read_text(encoding="utf-8"))["rates"])
    if arguments.check:
        sys.exit(renewed != text)
    PAGE.write_text(renewed, encoding="utf-8")


def with_tables(text: str, rates: Sequence[dict[str, Any]]) -> str:
    """Return a page with the tables of these rates between its markers.

    Raises:
        KeyError: The page names an unknown table.
    """
    return _TABLE.sub(lambda match: match[1] + "".join(f"{line}\n" for line in table(match[2], rates)) + match[3], text)


def table(theme: str, rates: Sequence[dict[str, Any]]) -> list[str]:
    """Return the lines of a table; empty if its theme has not been measured."""
    columns = _COLUMNS[theme]
    measured = [
        Measured(entry["setting"], {rate["measure"]: rate for rate in entry["rates"]})
        for entry in rates
        if entry["theme"] == theme
    ]
    if not measured:
        return []
    keys = _ROWS.get(theme)
    rows = [
        list(group)
        for _, group in groupby(measured, lambda setting: [setting.name[key] for key in keys or setting.name])
    ]
    cells = [list(columns), ["---"] * len(columns), *([show(row) for show in columns.values()] for row in rows)]
    return [f"| {' | '.join(line)} |".replace("| --- ", "|---").replace("---|", "---|") for line in cells]


def name(key: str, form: str = "{}") -> Show:
    """Return a formatter for a part of the setting's name."""

    def show(row: Sequence[Measured]) -> str:
        value = row[0].name[key]
        if key == "difference" and not value:
            return "none"
        return form.format(f"{value:,}" if isinstance(value, int) else value)

    return show


def share(key: str) -> Show:
    """Return a formatter for a part of the name that is a share."""
    return lambda row: f"{100 * row[0].name[key]:g} %"


def rate(measure: str) -> Show:
    """Return a formatter for a rate with its standard error, or marked exact; a dash if it was not measured."""

    def show(row: Sequence[Measured]) -> str:
        return shown(row[0].rates[measure]) if measure in row[0].rates else "–"

    return show


def extreme(choose: Callable[..., dict[str, Any]], measure: str, prefix: str = "") -> Show:
    """Return a formatter for the smallest or largest rate of the settings of a row.

    Args:
        choose: `min` or `max`.
        measure: The rate.
        prefix: Prefix of the `values` in the name.
    """

    def show(row: Sequence[Measured]) -> str:
        chosen = [setting.rates[measure] for setting in row if str(setting.name.get("values", "")).startswith(prefix)]
        return shown(choose(chosen, key=lambda rate: rate["value"]))

    return show


def pooled(measure: str) -> Show:
    """Return a formatter for the mean of a rate over the settings of a row."""

    def show(row: Sequence[Measured]) -> str:
        rates = [setting.rates[measure] for setting in row]
        error = math.sqrt(sum(rate["error"] ** 2 for rate in rates)) / len(rates)
        return shown({"value": sum(rate["value"] for rate in rates) / len(rates), "error": error, "trials": len(rates)})

    return show


def number(measure: str, form: str = "{:g}") -> Show:
    """Return a formatter for a mean that is not a share."""
    return lambda row: form.format(row[0].rates[measure]["value"]) if measure in row[0].rates else "–"


def shown(rate: dict[str, Any]) -> str:
    """Return a rate as printed on the page."""
    value = 100 * rate["value"]
    return f"{value:.1f} ± {100 * rate['error']:.1f} %" if rate.get("trials") else f"{value:.2f} %"


def first_of(*shows: Show) -> Show:
    """Return a formatter for the first available of several rates."""
    return lambda row: next((text for show in shows if (text := show(row)) != "–"), "–")


_DIFFERENCE = name("difference")
_ROWS = {
    "clusters": ("sizes", "clusters"),
    "equivalence": ("values", "margin"),
    "equivalence-rates": ("margin",),
    "agent-errors": ("errors", "repeats"),
    "drift": ("noise",),
    "corrected-rates": ("drawn", "labels"),
}
"""The parts of the name that settings of one row share; by default the whole name."""


def along(key: str, measure: str = "", digits: int = 1) -> Show:
    """Return a formatter for a rate along a part of the name, in percent.

    Args:
        key: The part of the name.
        measure: The rate; the first rate if empty.
        digits: Decimal places of a rate.
    """

    def show(row: Sequence[Measured]) -> str:
        rates = [(setting.name[key], setting.rates[measure or next(iter(setting.rates))]["value"]) for setting in row]
        places = [f"{100 * place:g} %" if isinstance(place, float) else f"{place:,}" for place, _ in rates]
        return ", ".join(f"{place}: {100 * rate:.{digits}f}" for place, (_, rate) in zip(places, rates, strict=True))

    return show


_COLUMNS: dict[str, dict[str, Show]] = {
    "mcnemar": {
        "cases": name("cases"),
        "disagree": share("disagreeing"),
        "difference": _DIFFERENCE,
        "exact McNemar": first_of(rate("false verdicts"), rate("power")),
        "mid-p": first_of(rate("false verdicts, mid-p"), rate("power, mid-p")),
    },
    "scores": {
        "values": name("values"),
        "cases": name("cases"),
        "difference": _DIFFERENCE,
        "sign flips": first_of(rate("false verdicts"), rate("power")),
        "paired t": first_of(rate("false verdicts, paired t"), rate("power, paired t")),
        "interval covers": rate("coverage"),
    },
    "skewed": {
        "cases": name("cases"),
        "sign flips": rate("sign flips"),
        "paired t": rate("paired t"),
        "`five-looks`": rate("five-looks"),
        "`always-valid`": rate("always-valid"),
    },
    "clusters": {
        "sizes": name("sizes"),
        "clusters": name("clusters"),
        "scores, ICC 0 to 0.8": extreme(max, "false verdicts", "scores"),
        "0 and 1": extreme(max, "false verdicts", "0"),
        "interval covers": pooled("coverage"),
        "t with G − 1 (CR1)": extreme(max, "false verdicts, t with G - 1"),
    },
    "balanced": {
        "values": name("values"),
        "clusters of 5": name("clusters"),
        "difference": _DIFFERENCE,
        "sign flips": rate("power"),
        "t with G − 1 (CR1)": rate("power, t with G - 1"),
        "interval covers": rate("coverage"),
    },
    "coverage": {
        "interval": name("interval"),
        "cases or clusters": lambda row: str(row[0].name.get("cases") or row[0].name["clusters"]),
        "difference": _DIFFERENCE,
        "covers": rate("coverage"),
    },
    "run-intervals": {
        "run": name("run"),
        "pass rate": share("pass rate"),
        "interval covers": rate("coverage"),
    },
    "equivalence": {
        "values": name("values"),
        "margin": name("margin"),
        "`equivalent` by number of cases, in %": along("cases"),
    },
    "equivalence-rates": {
        "margin": name("margin"),
        "`equivalent` by number of cases, in %, at the worst disagreement": along("cases", digits=2),
    },
    "agent-errors": {
        "errors": name("errors"),
        "repeats": name("repeats"),
        "false `B is better` by share of rows with an error, in %": along("rows"),
    },
    "max-drop": {
        "cases": name("cases"),
        "D": name("limit"),
        "`--max-drop` fails equal runs": rate("equal runs fail"),
        "printed chance": rate("printed chance"),
        "passes a drop of 2 D": rate("runs that are worse by twice the limit pass"),
        "`--max-drop-test` passes equal runs": rate("--max-drop-test: equal runs pass"),
        "passes a drop of D": rate("--max-drop-test: runs at the limit pass"),
    },
    "plans": {
        "values": name("values"),
        "difference": _DIFFERENCE,
        "planned cases": number("cases"),
        "true power": rate("power"),
    },
    "pilots": {
        "values": name("values"),
        "cases of the pilot": name("cases"),
        "mean power": rate("mean power"),
        "power below 60 %": rate("power below 60 %"),
        "mean power, upper limit": rate("mean power, upper limit"),
        "power below 60 %, upper limit": rate("power below 60 %, upper limit"),
        "not planned": rate("not planned"),
    },
    "stopping": {
        "values": name("values"),
        "cases": name("cases"),
        "difference": _DIFFERENCE,
        "`always-valid`": first_of(rate("false verdicts, always-valid"), rate("power, always-valid")),
        "saves": rate("saved, always-valid"),
        "`five-looks`": first_of(rate("false verdicts, five-looks"), rate("power, five-looks")),
        "saves ": rate("saved, five-looks"),
        "all cases": first_of(rate("false verdicts, all cases"), rate("power, all cases")),
    },
    "stopped-intervals": {
        "rule": name("rule", "`{}`"),
        "values": name("values"),
        "cases": name("cases"),
        "difference": _DIFFERENCE,
        "stopped": rate("stopped"),
        "plain difference after a stop": number("plain difference of those that stopped", "{:.3f}"),
        "interval covers": rate("coverage"),
        "estimate too large": rate("estimate above the difference"),
    },
    "families": {
        "runs": name("runs"),
        "any false verdict": rate("any false verdict"),
        "regression found": rate("regression found"),
        "with `--all-pairs`": rate("regression found, --all-pairs"),
    },
    "corrected-rates": {
        "labels drawn": name("drawn"),
        "labels": name("labels"),
        "lowest coverage": extreme(min, "coverage"),
        "mean width, widest": extreme(max, "mean width"),
        "no value, most": extreme(max, "no value"),
    },
    "alpha": {
        "values": name("values"),
        "items": name("items"),
        "true alpha": number("true alpha", "{:.3f}"),
        "interval covers": rate("coverage"),
        "no interval": rate("no interval"),
        "lower end from 0.67 on": rate("lower end from 0.67 on"),
    },
    "drift": {
        "noise of a score": name("noise"),
        "false alarms by number of anchors, in %": along("anchors", "false alarms"),
        "drift of 10 % of the scale found": along("anchors", "drift of 10 % found"),
    },
    "canaries": {
        "must fail": name("must fail"),
        "must pass": name("must pass"),
        "judge errs": share("judge errs"),
        "run fails": rate("fails"),
        "fails or warns": rate("fails or warns"),
    },
}


if __name__ == "__main__":
    main()
