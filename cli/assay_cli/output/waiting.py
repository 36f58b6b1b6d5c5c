"""Waiting for services: a line on the terminal that counts the seconds."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING, TypeVar

import click

from assay.text.screen import can_redraw
from assay.text.unsafe_text import clean

if TYPE_CHECKING:
    from collections.abc import Coroutine

_SILENT_S = 0.5
"""Shorter waits are not announced."""
_TICK_S = 1.0

T = TypeVar("T")


async def show_waiting(work: Coroutine[object, object, T], text: str, *, in_logs: bool = False) -> T:
    """Await work and return its result; after a short delay, show a text with the elapsed seconds.

    Args:
        work: The coroutine to await.
        text: Text of the line, e.g. "starting the local orchestrator".
        in_logs: Whether a stderr that is not a terminal also gets the text, once.
    """
    task = asyncio.ensure_future(work)
    begun_at = time.monotonic()
    is_live = sys.stderr is not None and can_redraw(sys.stderr)
    is_shown = False
    try:
        await asyncio.wait({task}, timeout=_SILENT_S)
        while not task.done():
            if is_live:
                seconds = time.monotonic() - begun_at
                click.echo(f"\r\x1b[2K{clean(text)} … {seconds:.0f} s", err=True, nl=False)
            elif in_logs and not is_shown:
                click.echo(f"{clean(text)} …", err=True)
            is_shown = True
            await asyncio.wait({task}, timeout=_TICK_S)
        return await task
    finally:
        if is_live and is_shown:
            click.echo("\r\x1b[2K", err=True, nl=False)
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
