"""The local orchestrator, started before the command line is parsed.

Nothing that takes long may be imported here: a test lists it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from assay.local_stack.early_start import EarlyStart, early_start

if TYPE_CHECKING:
    from collections.abc import Sequence


def start_for(arguments: Sequence[str]) -> EarlyStart | None:
    """Start the local orchestrator for a command line that is not parsed yet; None for one that may not need it.

    Args:
        arguments: Those after `assay`.
    """
    if arguments[:1] != ["run"] or os.environ.get("ASSAY_SERVER"):
        return None
    if any(argument in ("-h", "--help") or argument.startswith("--server") for argument in arguments):
        return None
    return early_start(None)
