"""The command groups; a command is imported only when it is used, so `assay --help` stays fast."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import click

from assay.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Group", "LazyGroup", "assay"]


class Group(click.Group):
    """A group that lists commands with whole sentences, understands `help`, and suggests a command for a mistyped
    name."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command; `help COMMAND` is `COMMAND --help`."""
        from assay.parsing.names import unknown_name

        names = self.list_commands(ctx)
        if args[0] == "help" and "help" not in names:
            named = [arg for arg in args[1:] if not arg.startswith("-")]
            if not named:
                click.echo(ctx.get_help())
                ctx.exit()
            args = [*named, "--help"]
        if args[0] not in names and not args[0].startswith("-"):
            if meant := self.meant(ctx, args[0]):
                suggestions = " or ".join(f"`{name}`" for name in meant)
                raise click.UsageError(f"unknown command {args[0]!r}; did you mean {suggestions}?", ctx)
            raise click.UsageError(unknown_name("command", args[0], names), ctx)
        return super().resolve_command(ctx, args)

    def meant(self, ctx: click.Context, name: str) -> list[str]:
        """Return the commands that an unknown name probably means; empty if none is close."""
        del ctx, name
        return []

    def summary(self, ctx: click.Context, name: str) -> str:
        """Return the first sentence of a command's help."""
        command = self.get_command(ctx, name)
        first = (command.help or "").partition("\n\n")[0] if command is not None else ""
        return " ".join(first.split()).partition(". ")[0].rstrip(".") + "."

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.summary(ctx, name)) for name in self.list_commands(ctx)])


class LazyGroup(Group):
    """A group that knows the names and summaries of its commands, and imports a command when it is called."""

    def __init__(self, *args: object, lazy: Mapping[str, tuple[str, str]], **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]  # click's own arguments, passed on
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command."""
        if cmd_name not in self._lazy:
            return None
        module, name = self._lazy[cmd_name][0].split(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def meant(self, ctx: click.Context, name: str) -> list[str]:
        """Return commands for an unknown name: an alias known from other tools, or subcommands with that name."""
        if name in _OTHER_NAMES:
            return [_OTHER_NAMES[name]]
        below = ((group, self.get_command(ctx, group)) for group in _GROUPS)
        return [f"assay {group} {name}" for group, command in below if name in getattr(command, "commands", ())]

    def summary(self, ctx: click.Context, name: str) -> str:
        """Return the summary of a command without importing it."""
        return self._lazy[name][1]


_COMMANDS = {
    "run": ("assay_cli.commands.run:run", "Evaluate an agent as a spec says, and write the reports."),
    "rescore": ("assay_cli.commands.rescore:rescore", "Score the stored answers of a run again, without the agent."),
    "init": ("assay_cli.commands.init:init", "Write a commented spec and a small dataset that run as they are."),
    "score": ("assay_cli.commands.score:score", "Score one answer, or a file of answers, with one metric."),
    "judge": (
        "assay_cli.commands.judge.group:judge",
        "Measure how far a judge can be trusted, and whether it has drifted.",
    ),
    "metrics": ("assay_cli.commands.metrics:metrics", "List the metrics; show the definition of one."),
    "validate": ("assay_cli.commands.validate:validate", "Check a spec and its dataset; every problem at once."),
    "datasets": (
        "assay_cli.commands.datasets.group:datasets",
        "Show how a file is read; list, show, read back and delete stored datasets.",
    ),
    "runs": ("assay_cli.commands.runs.group:runs", "List, show, watch, pause, resume, cancel and delete stored runs."),
    "compare": (
        "assay_cli.commands.compare:compare",
        "Test whether one run is better than another.",
    ),
    "baseline": ("assay_cli.commands.baseline:baseline", "Name the runs that other runs are compared with."),
    "plan": ("assay_cli.commands.plan:plan", "Compute how many cases a comparison needs, and their cost."),
    "report": ("assay_cli.commands.report:report", "Write the reports of a stored run or of a results.json."),
    "up": (
        "assay_cli.commands.stack:up",
        "Start the local stack and keep it running, so that later runs start faster.",
    ),
    "down": ("assay_cli.commands.stack:down", "Stop the local stack."),
    "serve": ("assay_cli.commands.serve:serve", "Run one service in the foreground."),
    "bench": ("assay_cli.commands.bench:bench", "Measure how fast a service is on this machine."),
    "cache": ("assay_cli.commands.cache:cache", "Delete the vectors that are kept on this machine."),
    "login": ("assay_cli.commands.login:login", "Store a token for a server, for later commands."),
    "logout": ("assay_cli.commands.login:logout", "Remove the stored token of a server."),
    "admin": (
        "assay_cli.commands.admin.group:admin",
        "Manage the teams and tokens of a shared server; read its audit.",
    ),
    "doctor": ("assay_cli.commands.doctor:doctor", "Check this machine: what works, what is missing."),
}

_GROUPS = ("runs", "datasets", "metrics", "baseline", "judge")
"""Groups whose commands are suggested when the group's name is missing; `admin` is for operators."""
_OTHER_NAMES = {
    "version": "assay --version",
    "view": "assay runs show latest",
    "eval": "assay run",
    "evaluate": "assay run",
    "test": "assay run",
    "start": "assay up",
    "stop": "assay down",
    "new": "assay init",
    "diff": "assay compare",
}


@click.group(
    cls=LazyGroup,
    lazy=_COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit status: 0 all gates hold, 1 a gate fails, 2 the input is wrong, 3 infrastructure failed or the "
    "run is incomplete, 4 a comparison is undecided and --strict asks for a decision, 130 interrupted.",
)
@click.version_option(__version__, "-V", "--version", prog_name="assay", message="%(prog)s %(version)s")
def assay() -> None:
    """Score LLM agents: run one over a dataset, score every answer, see what changed."""
    from assay_cli.output.terminal import forces_colour

    if forces_colour():
        click.get_current_context().color = True
