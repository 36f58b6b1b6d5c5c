"""A command whose help lists its options in groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_OTHERS = "Other"


class GroupedCommand(click.Command):
    """A command whose help lists its options in groups; those of no group come last.

    Args:
        groups: The names of the parameters by the name of their group, in the order of the help.
    """

    def __init__(self, *args: Any, groups: Mapping[str, Sequence[str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._groups = groups

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a table of options for each group."""
        group_of = {name: group for group, names in self._groups.items() for name in names}
        found: dict[str, list[tuple[str, str]]] = {group: [] for group in (*self._groups, _OTHERS)}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is not None:
                found[group_of.get(parameter.name or "", _OTHERS)].append(record)
        for group, records in found.items():
            if records:
                with formatter.section(f"{group} options"):
                    formatter.write_dl(records)
