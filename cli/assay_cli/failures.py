"""Errors as sentences on stderr, and as exit statuses."""

from __future__ import annotations

import sys
import traceback
from typing import TYPE_CHECKING

import click

from assay.errors import AssayError, ConflictError, InvalidInputError, NotFoundError, WrongStateError, count_problems
from assay.text.unsafe_text import clean, without_commands
from assay_cli.exit_status import EXIT_INFRASTRUCTURE, EXIT_INTERRUPTED, EXIT_USAGE
from assay_cli.output.streams import discard_unwritten, is_output_error

if TYPE_CHECKING:
    from assay.local_stack.early_start import EarlyStart

_USERS_FAULT = (InvalidInputError, NotFoundError, ConflictError, WrongStateError)


def exit_status(command: click.Command, start: EarlyStart | None = None) -> int:
    """Run a command and return its exit status; print errors as sentences on stderr.

    Args:
        command: The command.
        start: Services that were started for it early.
    """
    status: object = None
    stdout = sys.stdout
    try:
        status = command.main(standalone_mode=False, obj=start)
        if sys.stdout is not None:
            sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        return EXIT_USAGE
    except click.Abort:  # click's form of Ctrl-C
        click.echo("interrupted", err=True)
        return EXIT_INTERRUPTED
    except AssayError as error:
        show_error(error, command)
        return EXIT_USAGE if isinstance(error, _USERS_FAULT) else EXIT_INFRASTRUCTURE
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        return EXIT_INTERRUPTED
    except SystemExit:
        # If the reader of stdout has closed it, click wraps the streams and exits with 1, which is a failed gate here.
        if sys.stdout is stdout:
            raise
        return EXIT_INFRASTRUCTURE
    except BrokenPipeError:
        discard_unwritten()  # the reader closed the pipe
    except OSError as error:
        if not is_output_error(error):
            raise
        discard_unwritten()
        click.echo(f"error: cannot write the output: {error.strerror}", err=True)
        return EXIT_INFRASTRUCTURE
    return status if isinstance(status, int) else 0


def show_error(error: AssayError, command: click.Command | None = None) -> None:
    """Print an error as a sentence on stderr, with its traceback if --debug is given.

    Args:
        command: The root command `assay`; None inside a running command.
    """
    _show(error, command)
    if "--debug" in sys.argv:
        traceback.print_exception(error)


def _show(error: AssayError, command: click.Command | None) -> None:
    from assay.agent_host.loader import AgentImportError
    from assay_cli.resume_hint import pasted

    problems = error.problems if isinstance(error, InvalidInputError) else []
    if len(problems) > 1:
        click.echo(f"{count_problems(problems):,} problems:", err=True)
        for problem in problems:
            click.echo(without_commands(f"  {pasted(clean(str(problem)), root=command)}"), err=True)
    else:
        click.echo(without_commands(f"error: {pasted(clean(error.message, keep_lines=True), root=command)}"), err=True)
    if isinstance(error, AgentImportError):
        click.echo(without_commands(clean(error.user_traceback, keep_lines=True)), err=True)
