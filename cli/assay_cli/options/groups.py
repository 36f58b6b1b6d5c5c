"""A command whose help lists its options in groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

F = TypeVar("F", bound="Callable[..., Any]")

CI = ("junit", "summary", "comment_file", "comment_key", "annotations", "annotations_file")
COMPARISON = (
    "primary", "margin", "difference", "cluster", "adjust", "alpha", "seed", "fail_on", "max_drop", "max_drop_test",
    "strict", "allow_mismatch",
)  # fmt: skip
JUDGE = (
    "spec", "judge_name", "address", "provider", "model", "base_url", "key_variable", "replay", "prices", "spend_cap",
    "temperature", "max_tokens", "concurrency",
)  # fmt: skip
_OTHERS = "Other"


def combined(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Return one decorator for several options, which the help lists in this order."""

    def add(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return add


class GroupedCommand(click.Command):
    """A command whose help lists its options in groups; the rest come last.

    Args:
        groups: Parameter names by group, in the order of the help; the first group that names an option has it.
    """

    def __init__(self, *args: Any, groups: Mapping[str, Sequence[str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.groups = groups

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one table of options per group."""
        group_of: dict[str, str] = {}
        for group, names in self.groups.items():
            group_of = dict.fromkeys(names, group) | group_of  # the first group counts
        tables: dict[str, list[tuple[str, str]]] = {group: [] for group in (*self.groups, _OTHERS)}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is not None:
                tables[group_of.get(parameter.name or "", _OTHERS)].append(record)
        for group, records in tables.items():
            if records:
                with formatter.section(f"{group} options"):
                    formatter.write_dl(records)
