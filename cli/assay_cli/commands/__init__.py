"""The commands. Each is imported only when it is used, so that `assay --help` is quick."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import click

from assay.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Group", "LazyGroup", "assay"]


class Group(click.Group):
    """A group that lists its commands with whole sentences, answers `help`, and names the nearest of an unknown one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command; `help COMMAND` is `COMMAND --help`."""
        from assay.parsing.names import unknown_name

        known = self.list_commands(ctx)
        if args[0] == "help" and "help" not in known:
            named = [arg for arg in args[1:] if not arg.startswith("-")]
            if not named:
                click.echo(ctx.get_help())
                ctx.exit()
            args = [*named, "--help"]
        if args[0] not in known and not args[0].startswith("-"):
            if meant := self.meant(ctx, args[0]):
                said = " or ".join(f"`{each}`" for each in meant)
                raise click.UsageError(f"unknown command {args[0]!r}; did you mean {said}?", ctx)
            raise click.UsageError(unknown_name("command", args[0], known), ctx)
        return super().resolve_command(ctx, args)

    def meant(self, ctx: click.Context, name: str) -> list[str]:
        """Return the commands that a name which is none of the group's probably means; none where nothing is close."""
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
    """A group that knows its commands by name and one sentence, and imports one when it is called."""

    def __init__(self, *args: object, lazy: Mapping[str, tuple[str, str]], **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]  # click's own arguments, passed on
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, imported now."""
        if cmd_name not in self._lazy:
            return None
        module, name = self._lazy[cmd_name][0].split(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def meant(self, ctx: click.Context, name: str) -> list[str]:
        """Return what other tools call by a name, or the commands of a group below this one with that name."""
        if name in _OTHER_NAMES:
            return [_OTHER_NAMES[name]]
        below = ((group, self.get_command(ctx, group)) for group in _GROUPS)
        return [f"assay {group} {name}" for group, command in below if name in getattr(command, "commands", ())]

    def summary(self, ctx: click.Context, name: str) -> str:
        """Return the sentence of a command, which is not imported for it."""
        return self._lazy[name][1]


_COMMANDS = {
    "run": ("assay_cli.commands.run:run", "Evaluate an agent as a spec says, and write the reports."),
    "rescore": ("assay_cli.commands.rescore:rescore", "Score the stored answers of a run again, without the agent."),
    "init": ("assay_cli.commands.init:init", "Write a commented spec and a small dataset that run as they are."),
    "score": ("assay_cli.commands.score:score", "Score one answer, or a file of answers, with one metric."),
    "judge": (
        "assay_cli.commands.judge.group:judge",
        "Find out how far a judge can be trusted, and whether it has drifted.",
    ),
    "metrics": ("assay_cli.commands.metrics:metrics", "List the metrics; show how one is defined."),
    "validate": ("assay_cli.commands.validate:validate", "Check a spec and its dataset; every problem at once."),
    "dataset": ("assay_cli.commands.dataset:dataset", "Show what a dataset is recognised as."),
    "runs": ("assay_cli.commands.runs.group:runs", "List, show, watch, pause, resume, cancel and delete stored runs."),
    "compare": (
        "assay_cli.commands.compare:compare",
        "Say whether one run is better than another, and how sure that is.",
    ),
    "baseline": ("assay_cli.commands.baseline:baseline", "Name the runs that others are compared with."),
    "plan": ("assay_cli.commands.plan:plan", "Say how many cases a comparison needs, and what they cost."),
    "report": ("assay_cli.commands.report:report", "Write the reports of a stored run, or of its results.json."),
    "up": ("assay_cli.commands.stack:up", "Start the local stack and keep it running, so that runs find it warm."),
    "down": ("assay_cli.commands.stack:down", "Stop the local stack."),
    "serve": ("assay_cli.commands.serve:serve", "Run one service in the foreground."),
    "bench": ("assay_cli.commands.bench:bench", "Measure how fast a service is on this machine."),
    "login": ("assay_cli.commands.login:login", "Store a token for a server, for later commands."),
    "logout": ("assay_cli.commands.login:logout", "Remove the stored token of a server."),
    "admin": (
        "assay_cli.commands.admin.group:admin",
        "Manage the teams and tokens of a shared server; read its audit.",
    ),
    "doctor": ("assay_cli.commands.doctor:doctor", "Check this machine: what works, what is missing."),
}

_GROUPS = ("runs", "dataset", "metrics", "baseline", "judge")
"""Groups whose commands may be meant where their group is left out; `admin` is for operators."""
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
