"""The other fields of a case: expected tool calls, checks, thresholds, approvals and weight."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from assay.datasets.fields.aliases import is_blank
from assay.datasets.records import shown
from assay.datasets.values.cells import value_in_cell
from assay.datasets.values.separated_names import split_tools
from assay.model.answers.approvals import read_approvals
from assay.model.case import MAX_WEIGHT, Assertion
from assay.model.expected_tool import read_expected_tool
from assay.parsing.names import unknown_name

if TYPE_CHECKING:
    from assay.datasets.fields.aliases import Layout
    from assay.datasets.values.field_values import Fields, Trouble
    from assay.model.answers.approvals import Approval
    from assay.model.case import ExpectedTool

_ASSERTION_FIELDS = ("type", "value", "threshold", "group", "weight", "negate")
_BOTH = ("semantic_similarity", "assertions")
_WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def expected_tools(fields: Fields) -> tuple[ExpectedTool, ...]:
    """Return the expected tool calls, in order."""
    source, value = fields.find("expected_tools")
    if isinstance(value, str) and isinstance(value := value_in_cell(value), str):
        value = list(fields.names("expected_tools", split_tools))
    return tools_of(fields, source, value)


def tools_of(fields: Fields, where: str, value: object) -> tuple[ExpectedTool, ...]:
    """Return the tool calls in a list of names or objects.

    Args:
        fields: Collects the problems.
        where: The field that holds the list.
        value: The list; a single item is a list of one.
    """
    if is_blank(value):
        return ()
    items = value if isinstance(value, list) else [value]
    tools = (_tool(fields, f"{where}[{index}]", item) for index, item in enumerate(items))
    return tuple(tool for tool in tools if tool is not None)


def _tool(fields: Fields, where: str, item: object) -> ExpectedTool | None:
    tool, problems = read_expected_tool(item)
    fields.trouble += [(f"{where}{field}", problem) for field, problem in problems]
    return tool


def assertions(fields: Fields) -> tuple[Assertion, ...]:
    """Return the checks of the case."""
    source, items = fields.items("assertions")
    checks = (_assertion(fields, f"{source}[{index}]", item) for index, item in enumerate(items))
    return tuple(check for check in checks if check is not None)


def _assertion(fields: Fields, where: str, item: object) -> Assertion | None:
    if not isinstance(item, Mapping) or not isinstance(item.get("type"), str):
        fields.trouble.append((where, f"must be a check: an object with type and value, not {shown(item)}"))
        return None
    before = len(fields.trouble)
    for key in item:
        if key not in _ASSERTION_FIELDS:
            fields.trouble.append((f"{where}.{key}", unknown_name("field of a check", key, _ASSERTION_FIELDS)))
    kind = item["type"].strip()
    is_negated = kind.startswith("not-")
    negate = item.get("negate", False)
    if not isinstance(negate, bool):
        fields.trouble.append((f"{where}.negate", f"must be true or false, not {shown(negate)}"))
    group = item.get("group")
    if group is not None and not isinstance(group, str):
        fields.trouble.append((f"{where}.group", f"must be a string, not {shown(group)}"))
    threshold, share = item.get("threshold"), item.get("weight")
    if threshold is not None:
        threshold = fields.as_number(f"{where}.threshold", threshold)
    if share is not None:
        share = fields.as_number(f"{where}.weight", share, low=0, high=MAX_WEIGHT)
    if len(fields.trouble) > before:
        return None
    return Assertion(
        type=kind.removeprefix("not-"),
        value=item.get("value"),
        threshold=threshold,
        group=group or "",
        weight=1.0 if share is None else share,
        negate=negate is not is_negated,
    )


def approvals(fields: Fields) -> tuple[Approval, ...]:
    """Return the scripted approvals of the case; a decision without `times` is used once."""
    source, value = fields.find("approvals")
    if isinstance(value, str) and fields.from_cells:
        value = value_in_cell(value)
    if is_blank(value):
        return ()
    if not isinstance(value, list):
        hint = 'where it is something else, switch it off with `map: {approvals: ""}`'
        fields.trouble.append((source, f"must be a list such as [{{approve: true}}], not {shown(value)}; {hint}"))
        return ()
    read, problems = read_approvals(value, times=1)
    fields.trouble += [(f"{source}{part}", problem) for part, problem in problems]
    return read


def thresholds(fields: Fields) -> dict[str, float]:
    """Return the case's own thresholds: `threshold` for similarity and checks, `thresholds` by metric."""
    by_metric: dict[str, float] = {}
    sources = fields.layout.sources
    if "threshold" not in sources and "thresholds" not in sources:
        return by_metric
    source, value = fields.find("threshold")
    if not is_blank(value):
        threshold = fields.as_number(source, value)
        by_metric = {} if threshold is None else dict.fromkeys(_BOTH, threshold)
    source, _ = fields.find("thresholds")
    for metric, value in fields.mapping("thresholds").items():
        threshold = fields.as_number(f"{source}.{metric}", value)
        if not metric.strip():
            fields.trouble.append((source, "has a threshold without the name of a metric"))
        elif threshold is not None:
            by_metric[metric.strip()] = threshold
    return by_metric


def weight(fields: Fields) -> float:
    """Return the weight of the case; 1 by default."""
    source, value = fields.find("weight")
    if is_blank(value):
        return 1.0
    number = fields.as_number(source, value, low=0, high=MAX_WEIGHT)
    return 1.0 if number is None else number


def human_labels(fields: Fields) -> dict[str, Any]:
    """Return the human labels of the recorded answer: an object; another value is put under its field's name."""
    source, value = fields.find("human_labels")
    if isinstance(value, str) and fields.from_cells:
        value = value_in_cell(value)
    if is_blank(value):
        return {}
    return value if isinstance(value, dict) else {source: value}


def is_skipped(data: Mapping[str, Any], layout: Layout, trouble: Trouble) -> bool:
    """Return whether a record is marked to be skipped.

    Args:
        data: The record.
        layout: Its fields; `skip` must be among them.
        trouble: Collects the problems of the field.
    """
    source = layout.sources["skip"][0]
    value = data[source]
    if is_blank(value):
        return False
    word = _WORDS.get(value.strip().lower()) if isinstance(value, str) else value
    if isinstance(word, bool):
        return word
    trouble.append((source, f"must be true or false, not {shown(value)}"))
    return False
