"""The evaluator of the tests of alert rules, against examples that are worked by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
from tests.promql.alerts import firing
from tests.promql.evaluation import evaluate, quantile
from tests.promql.series import read_series
from tests.promql.syntax import parse


def value(query: str, at_s: float, **series: str) -> Any:
    """Return the value of a query over series by their names, a sample a minute."""
    return evaluate(parse(query), [read_series(name, text, 60.0) for name, text in series.items()], at_s)


def test_a_rate_is_extrapolated_to_its_range_but_not_below_zero() -> None:
    """Five samples within 5 min cover 4 min; a counter that rises by 60 a minute has a rate of 1."""
    assert value("rate(m[5m])", 600.0, m="0+60x10") == {(): pytest.approx(1.0)}
    assert value("increase(m[5m])", 600.0, m="0+60x10") == {(): pytest.approx(300.0)}
    # It restarts within the range: 420 → 480 → 0 → 60 → 120 rises by 60 + 0 + 60 + 60.
    assert value("increase(m[5m])", 660.0, m="0+60x8 0+60x2") == {(): pytest.approx(180 * 300 / 240)}
    # Two samples at 0 and 60 s: to the start of the range only as far as the counter was above 0.
    assert value("increase(m[5m])", 60.0, m="10+10x1") == {(): pytest.approx(10 * (60 + 30) / 60)}
    assert value("increase(m[5m])", 60.0, m="0+10x1") == {(): pytest.approx(10.0)}
    assert value("rate(m[5m])", 0.0, m="1") == {}


def test_a_quantile_is_interpolated_within_its_bucket() -> None:
    """Of 100 values, 40 up to 1 and 90 up to 2: the median is a fifth of the way from 1 to 2."""
    buckets = [(1.0, 40.0), (2.0, 90.0), (math.inf, 100.0)]
    assert quantile(0.5, buckets) == pytest.approx(1.2)
    assert quantile(0.2, buckets) == pytest.approx(0.5)  # the first bucket begins at 0
    assert quantile(0.99, buckets) == 2.0  # beyond the last bound there is none
    assert math.isnan(quantile(0.5, [(1.0, 0.0), (math.inf, 0.0)]))
    series = [read_series(f'b{{le="{bound}", x="1"}}', str(count), 60.0) for bound, count in buckets[:2]]
    series.append(read_series('b{le="+Inf", x="1"}', "100", 60.0))
    found: Any = evaluate(parse("histogram_quantile(0.5, sum by (le, x) (b))"), series, 0.0)
    assert found == {(("x", "1"),): pytest.approx(1.2)}


def test_series_are_selected_aggregated_and_matched() -> None:
    """Matchers are of the whole value; a comparison keeps what it holds for; a division pairs equal labels."""
    series = [
        read_series('m{a="1", b="x"}', "10", 60.0), read_series('m{a="2", b="x"}', "20", 60.0),
        read_series('m{a="12", b="y"}', "30", 60.0), read_series("n", "4", 60.0),
    ]  # fmt: skip

    def found(query: str) -> Any:
        return evaluate(parse(query), series, 0.0)

    one, two, twelve = [(("a", at), ("b", by)) for at, by in (("1", "x"), ("2", "x"), ("12", "y"))]
    assert found('m{a=~"1|2"}') == {one: 10, two: 20}
    assert found('m{a!~"1.*", b!="y"}') == {two: 20}
    assert found("sum by (b) (m)") == {(("b", "x"),): 30, (("b", "y"),): 30}
    assert found("max(m) - min(m) * 2") == {(): 10}
    assert found("m > 15") == {two: 20, twelve: 30}
    assert found("m / m == 1") == {one: 1, two: 1, twelve: 1}
    assert found('m and on () n == 4 or m{a="3"}') == {one: 10, two: 20, twelve: 30}
    assert found("m unless on () n") == {}
    assert found('absent(k{a="1", c=~"x"})') == {(("a", "1"),): 1}
    assert found("absent(n)") == {}
    assert found("time() - n") == {(): -4}


def test_a_sample_counts_for_five_minutes_unless_the_series_has_ended() -> None:
    """Missing samples are bridged; a series that is no longer scraped ends at once."""
    assert value("m", 299.0, m="7") == {(): 7}
    assert value("m", 300.0, m="7") == {}
    assert value("m", 60.0, m="7 stale") == {}
    assert value("m", 120.0, m="7 stale 8") == {(): 8}
    assert value("m", 180.0, m="1 _x2 4") == {(): 4}


def test_an_alert_fires_once_its_condition_has_held_for_long_enough() -> None:
    """An interruption begins the wait anew; each set of labels waits for itself."""
    rule = {"alert": "High", "expr": "m > 1", "for": "3m", "labels": {"severity": "warning"}}
    series = [read_series('m{x="1"}', "2x4 0 2x4", 60.0), read_series('m{x="2"}', "0x4 2x5", 60.0)]

    def names(minute: int) -> list[str]:
        return sorted(dict(labels)["x"] for labels in firing(rule, series, minute * 60.0, 60.0))

    # The first is high until minute 4 and again from 6, the second from 5.
    assert [names(minute) for minute in range(10)] == [[]] * 3 + [["1"]] * 2 + [[]] * 3 + [["2"], ["1", "2"]]


@pytest.mark.parametrize(
    "query",
    [
        "irate(m[5m])",
        "m offset 5m",
        "rate(m)",
        "m[5m",
        "sum without (a) (m)",
        "m{a=1}",
        "m / on (a) n",
        "1 + 1",
        "m)",
        "",
    ],
)
def test_what_is_not_known_is_an_error(query: str) -> None:
    """A rule that the evaluator does not understand is not taken for one that never fires."""
    with pytest.raises(ValueError):  # noqa: PT011 - each says something else
        value(query, 0.0, m="1", n="1")
