"""Options for CI: JUnit file, job summary, comment text and annotations."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from assay_cli.options.groups import CI

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., Any]")
_FILE = click.Path(path_type=Path, dir_okay=False)


def ci_options(command: F) -> F:
    """Add the options for CI; the command gets them as `ci`, with every file known to be writable, or None without
    them."""

    @click.option(
        "--junit",
        type=_FILE,
        metavar="FILE",
        help="Write a JUnit file for CI; an existing file is replaced; default: none.",
    )
    @click.option(
        "--summary",
        type=_FILE,
        metavar="FILE",
        help='Add a Markdown summary to this file, for example "$GITHUB_STEP_SUMMARY"; default: none.',
    )
    @click.option(
        "--comment-file",
        type=_FILE,
        metavar="FILE",
        help="Write the Markdown text of a comment; an existing file is replaced; default: none.",
    )
    @click.option(
        "--comment-key",
        metavar="KEY",
        default="default",
        help="Key of the comment: a pull request has one comment per spec and key; default: default.",
    )
    @click.option("--annotations", is_flag=True, help="Print failures as annotations of a GitHub job.")
    @click.option(
        "--annotations-file",
        type=_FILE,
        metavar="FILE",
        help="Write these annotations to a file for a later step to print; an existing file is replaced; default: "
        "none.",
    )
    @functools.wraps(command)
    def with_ci(*args: Any, **kwargs: Any) -> Any:
        values = {name: kwargs.pop(name) for name in CI}
        ci = None
        if any(value for name, value in values.items() if name != "comment_key"):
            from assay.reports.ci_outputs import CiOutputs  # imported here: it imports every format for CI servers

            ci = CiOutputs(**values)
            ci.check()
            ci = ci.in_place()
        return command(*args, ci=ci, **kwargs)

    return with_ci  # type: ignore[return-value]  # click passes what the command gets
