"""The command's entry: `assay`, or `python -m assay_cli`."""

from __future__ import annotations

import gc
import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from types import FrameType

_CRASHED, _INTERRUPTED = 3, 130
_START_OBJECTS = 200_000
"""More than imports make, none of which is garbage."""


def main() -> None:
    """Run the command line and exit with its status: a crash is 3, never the 1 of a gate that fails."""
    # An import that is interrupted fails in its own way; nothing has been started that must be ended first.
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interruptible:
        signal.signal(signal.SIGINT, _leave)
    gc.set_threshold(_START_OBJECTS)  # collecting while modules are imported takes a tenth of a short command
    # gRPC's own log lines are for its developers; set before anything imports it.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    start = None
    try:
        from assay_cli.early_start import start_for

        start = start_for(sys.argv[1:])
        # Imported while the orchestrator starts.
        from assay_cli.commands import assay
        from assay_cli.failures import exit_status
        from assay_cli.output.streams import escape_unencodable, keep_stdout, replace_closed

        replace_closed()
        escape_unencodable()
        keep_stdout()
        if interruptible:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        status = exit_status(assay, start)
    except KeyboardInterrupt:
        status = _INTERRUPTED
    except Exception as problem:  # noqa: BLE001 - the boundary of a process: printed with its traceback
        if isinstance(problem, ModuleNotFoundError) and problem.name == "click":
            _show_missing_extra()
        else:
            _show_crash()
        status = _CRASHED
    finally:
        if start is not None:
            start.abandon()
    gc.freeze()  # a last collection of garbage takes longer than the rest of an exit
    sys.exit(status)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    os.write(2, b"interrupted\n")
    os._exit(_INTERRUPTED)


def _show_missing_extra() -> None:
    from assay.local_stack.install_hint import install_hint

    print(f"error: the command needs the extra cli: {install_hint('cli')}", file=sys.stderr)  # noqa: T201 - click is missing


def _show_crash() -> None:
    """Write the traceback and what to do, if stderr takes them."""
    import contextlib
    import traceback

    from assay_cli.output.streams import discard_unwritten

    with contextlib.suppress(OSError):
        traceback.print_exc()
        print("error: Assay failed; please report this traceback", file=sys.stderr)  # noqa: T201 - click may be broken
    discard_unwritten()


if __name__ == "__main__":
    main()
