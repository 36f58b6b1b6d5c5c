"""`assay metrics`: list metrics and show their definitions."""

from __future__ import annotations

import json
import math
import textwrap
from typing import TYPE_CHECKING, Any

import click

from assay.metrics import METRICS, definition, metric_kind
from assay.metrics.core.info import RULE_SIGNS
from assay_cli.commands import Group
from assay_cli.options.shared import json_option
from assay_cli.output.documents import print_document
from assay_cli.output.terminal import table

if TYPE_CHECKING:
    from assay.metrics.core.info import MetricInfo, Parameter


@click.group(cls=Group)
def metrics() -> None:
    """List the metrics; show the definition of one."""


@metrics.command("list")
@json_option
def list_metrics(as_json: bool) -> int:
    """List all metrics with their inputs, default thresholds and summaries."""
    infos = [kind.info for kind in METRICS.values()]
    if as_json:
        print_document("metrics", {"metrics": [_head(info) for info in infos]})
        return 0
    rows = [("metric", "reads", "threshold", "summary")]
    rows += [(info.name, ", ".join(info.reads), _threshold(info), info.summary) for info in infos]
    click.echo(table(rows, text_columns=2))
    click.echo("\n`assay metrics show NAME` shows formula, edge cases and parameters.")
    click.echo("For Python metrics of your own, see `assay init --metric` and `assay metrics show python`.")
    return 0


@metrics.command()
@click.argument("name")
@json_option
def show(name: str, as_json: bool) -> int:
    """Show the definition of the metric NAME: formula, inputs, edge cases, parameters, an example."""
    info = METRICS[metric_kind(name)].info
    if as_json:
        document = {
            **_head(info),
            "definition": definition(info.name),
            "parameters": [_parameter(parameter) for parameter in info.parameters],
            "example": _example(info),
        }
        print_document("metric", document)
        return 0
    parts = [
        f"{info.title} ({info.name})\n{info.summary}",
        f"Reads      {', '.join(info.reads)}\nRange      {info.values}\nThreshold  {_threshold(info)}",
        definition(info.name),
        _parameters(info),
        _gates(info),
        "Example\n\n" + "\n".join(f"    {line}" for line in _example(info).splitlines()),
    ]
    click.echo("\n\n".join(part for part in parts if part))
    return 0


def _head(info: MetricInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "title": info.title,
        "summary": info.summary,
        "reads": list(info.reads),
        "needs_embedder": info.needs_embedder,
        "rule": info.rule,
        "threshold": _default(info, "threshold"),
        "unit": info.unit or None,
        "range": info.values,
        "statistics": ["value", "pass_rate", *info.stats],
    }


def _default(info: MetricInfo, name: str) -> Any:
    return next((parameter.default for parameter in info.parameters if parameter.name == name), None)


def _threshold(info: MetricInfo) -> str:
    default = _default(info, "threshold")
    return "-" if default is None else f"{RULE_SIGNS[info.rule]} {default:g}"


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "type": parameter.kind,
        "default": parameter.default,
        "required": parameter.required,
        "minimum": parameter.minimum if math.isfinite(parameter.minimum) else None,
        "maximum": parameter.maximum if math.isfinite(parameter.maximum) else None,
        "choices": list(parameter.choices) or None,
        "help": parameter.help,
    }


def _parameters(info: MetricInfo) -> str:
    if not info.parameters:
        return "No parameters."
    lines = ["Parameters"]
    for parameter in info.parameters:
        default = "required" if parameter.required else f"default {_shown(parameter.default)}"
        facts = [parameter.kind.replace("_", " "), *_range(parameter), default]
        lines += ["", f"    {parameter.name}  ({', '.join(facts)})", f"        {parameter.help}"]
    return "\n".join(lines)


def _gates(info: MetricInfo) -> str:
    """Return the figures that gates may compare."""
    names = ", ".join(f"{info.name}.{name}" for name in ("pass_rate", *info.stats))
    return "Gates\n\n" + textwrap.fill(
        f"{info.name} (the aggregate), {names}", 100, initial_indent="    ", subsequent_indent="    "
    )


def _range(parameter: Parameter) -> list[str]:
    if parameter.choices:
        return [" | ".join(parameter.choices)]
    low, high = parameter.minimum, parameter.maximum
    if math.isfinite(low) and math.isfinite(high):
        return [f"{low:g} to {high:g}"]
    return [f"at least {low:g}"] if math.isfinite(low) else [f"at most {high:g}"] if math.isfinite(high) else []


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 100 else f"{text[:97]}..."


def _example(info: MetricInfo) -> str:
    import yaml

    parameters = dict(info.example) or {"threshold": _default(info, "threshold")}
    if parameters == {"threshold": None}:
        return f"metrics:\n  - {info.name}"
    text: str = yaml.safe_dump({info.name: parameters}, sort_keys=False, allow_unicode=True, width=100)
    first, *rest = text.rstrip().splitlines()
    return "\n".join(["metrics:", f"  - {first}", *(f"    {line}" for line in rest)])
