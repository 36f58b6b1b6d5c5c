"""Charts as SVG: geometry in attributes, colours by class from the style sheet, so that a strict CSP allows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from assay.text.unsafe_text import escaped

if TYPE_CHECKING:
    from collections.abc import Sequence

_WIDTH = 200.0
_TRACK = Markup('<rect class="track" x="0" y="5" width="200" height="12" rx="2"/>')


def interval_bar(
    name: str,
    title: str,
    value: float,
    interval: tuple[float, float] | None,
    threshold: float | None,
    scale: tuple[float, float],
    *,
    meets: bool | None = None,
) -> Markup:
    """Return a bar up to a value, with its interval as a whisker and its threshold as a line.

    Args:
        name: An id, unique on the page.
        title: The chart in words, for people who do not see it.
        value: The value.
        interval: Its low and high end; None without one.
        threshold: The threshold; None without one.
        scale: The values at the ends of the bar.
        meets: Whether the value meets the threshold; None without one.
    """
    low, high = scale

    def at(number: float) -> str:
        return _number(_WIDTH * min(max((number - low) / ((high - low) or 1.0), 0.0), 1.0))

    kind = {True: "good", False: "bad", None: "plain"}[meets]
    parts = [
        _TRACK,
        Markup('<rect class="{}" x="0" y="5" width="{}" height="12" rx="2"/>').format(kind, at(value)),
    ]
    if interval is not None:
        parts.append(_whisker(at(interval[0]), at(interval[1])))
    if threshold is not None:
        parts.append(Markup('<path class="bound" d="M{} 1V21"/>').format(at(threshold)))
    return _chart(name, title, "bar", _WIDTH, 22, parts)


def difference_bar(
    name: str,
    title: str,
    value: float,
    interval: tuple[float, float] | None,
    reach: float,
    *,
    margin: float | None = None,
    is_good: bool | None = None,
) -> Markup:
    """Return a difference as a mark with its interval on an axis with 0 in its middle.

    Args:
        name: An id, unique on the page.
        title: The chart in words.
        value: The difference.
        interval: Its low and high end; None without one.
        reach: The value at either end of the axis, above 0.
        margin: Differences within ± this are equivalent; None without a margin.
        is_good: Whether the difference is a gain; None if undecided.
    """

    def at(number: float) -> str:
        return _number(_WIDTH / 2 * (1 + min(max(number / reach, -1.0), 1.0)))

    kind = {True: "good", False: "bad", None: "plain"}[is_good]
    parts = [_TRACK]
    if margin is not None:
        width = _number(float(at(margin)) - float(at(-margin)))
        parts.append(Markup('<rect class="margin" x="{}" y="5" width="{}" height="12"/>').format(at(-margin), width))
    parts.append(Markup('<path class="axis" d="M{} 1V21"/>').format(at(0.0)))
    if interval is not None:
        parts.append(_whisker(at(interval[0]), at(interval[1])))
    parts.append(Markup('<circle class="{}" cx="{}" cy="11" r="5"/>').format(kind, at(value)))
    return _chart(name, title, "bar", _WIDTH, 22, parts)


def shares_bar(name: str, title: str, shares: Sequence[tuple[str, int]]) -> Markup:
    """Return a bar divided in proportion to counts.

    Args:
        name: An id, unique on the page.
        title: The chart in words.
        shares: The class and the count of each part.
    """
    total = sum(count for _, count in shares)
    parts, start = [Markup('<rect class="track" x="0" y="0" width="600" height="18" rx="3"/>')], 0.0
    for kind, count in shares:
        if count:
            width = 600 * count / total
            parts.append(
                Markup('<rect class="{}" x="{}" y="0" width="{}" height="18"/>').format(
                    kind, _number(start), _number(max(width - 1.5, 1.0))
                )
            )
            start += width
    return _chart(name, title, "shares", 600, 18, parts)


def histogram(
    name: str, title: str, counts: Sequence[int], bin_width: float, marks: Sequence[tuple[str, float]], unit: str
) -> Markup:
    """Return a histogram that starts at 0, with named vertical lines.

    Args:
        name: An id, unique on the page.
        title: The chart in words.
        counts: The number of values in each bin.
        bin_width: The width of a bin in the unit.
        marks: Name and value of each line.
        unit: The unit of the values.
    """
    width, height, left, base = 420.0, 190.0, 40.0, 150.0
    top, step, most = 34.0, (420.0 - 40.0 - 12.0) / len(counts), max(*counts, 1)
    parts = [Markup('<path class="axis" d="M{0} {1}H{2}"/>').format(_number(left), _number(base), _number(width - 12))]
    for share in (0.5, 1.0):
        y = base - (base - top) * share
        parts.append(
            Markup('<path class="grid" d="M{} {}H{}"/>').format(_number(left), _number(y), _number(width - 12))
        )
        if most * share == int(most * share):
            parts.append(_label(left - 6, y + 4, f"{int(most * share):,}", "end"))
    for index, count in enumerate(counts):
        if count:
            tall = max((base - top) * count / most, 1.5)
            parts.append(
                Markup('<rect class="plain" x="{}" y="{}" width="{}" height="{}"/>').format(
                    _number(left + index * step + 0.5), _number(base - tall), _number(step - 1), _number(tall)
                )
            )
    for share in (0.0, 0.5, 1.0):
        value = bin_width * len(counts) * share
        anchor = "end" if share == 1 else "middle" if share else "start"
        parts.append(_label(left + step * len(counts) * share, base + 16, f"{value:.3g} {unit}", anchor))
    for index, (mark, value) in enumerate(marks):
        x = left + min(value / bin_width, len(counts)) * step
        parts.append(Markup('<path class="bound" d="M{} {}V{}"/>').format(_number(x), _number(top - 14), _number(base)))
        anchor = "start" if x < left + 60 else "end" if x > width - 60 else "middle"
        parts.append(_label(x, 14.0 if index == 0 else base + 34, mark, anchor))
    return _chart(name, title, "histogram", width, height, parts)


def _chart(name: str, title: str, kind: str, width: float, height: float, parts: Sequence[Markup]) -> Markup:
    return Markup(
        '<svg class="chart {kind}" role="img" aria-labelledby="{name}-title" viewBox="0 0 {width} {height}"'
        ' preserveAspectRatio="{fit}"><title id="{name}-title">{title}</title>{parts}</svg>'
    ).format(
        kind=kind,
        name=name,
        width=_number(width),
        height=_number(height),
        fit="none" if kind == "shares" else "xMinYMid",
        title=escaped(title),
        parts=Markup("").join(parts),
    )


def _whisker(start: str, end: str) -> Markup:
    path = f"M{start} 11H{end}M{start} 7V15M{end} 7V15"
    return Markup('<path class="whisker-edge" d="{0}"/><path class="whisker" d="{0}"/>').format(path)


def _label(x: float, y: float, text: str, anchor: str) -> Markup:
    return Markup('<text x="{}" y="{}" text-anchor="{}">{}</text>').format(_number(x), _number(y), anchor, text)


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
