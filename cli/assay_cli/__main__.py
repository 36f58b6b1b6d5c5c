"""Entry point of the command: `assay`, or `python -m assay_cli`."""

from __future__ import annotations

import gc
import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from assay.local_stack.early_start import EarlyStart

_CRASHED, _INTERRUPTED = 3, 130
_START_OBJECTS = 200_000
"""Above the number of objects that imports create, none of which is garbage."""


def main() -> None:
    """Run the command line and exit with its status. A crash exits with 3, never with the 1 of a failed gate."""
    # An interrupted import may fail in any way. Nothing needs to be shut down yet, so Ctrl-C ends the process at once.
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interruptible:
        signal.signal(signal.SIGINT, _leave)
    gc.set_threshold(_START_OBJECTS)  # collections during imports take a tenth of a short command's time
    # gRPC's own log lines are for its developers. The variable counts only if it is set before the first import of
    # gRPC.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    start = None
    try:
        start = _start_for(sys.argv[1:])
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
    gc.freeze()  # the interpreter's last garbage collection takes longer than the rest of the exit
    sys.exit(status)


def _start_for(arguments: Sequence[str]) -> EarlyStart | None:
    """Start the local orchestrator before the command line is parsed; None for a command that may not need it.

    Args:
        arguments: The arguments after `assay`.
    """
    if arguments[:1] != ["run"] or os.environ.get("ASSAY_SERVER"):
        return None
    if any(argument in ("-h", "--help") or argument.startswith("--server") for argument in arguments):
        return None
    # A test lists what these imports must not load: the orchestrator starts only after them.
    from assay.local_stack.early_start import early_start

    return early_start(None)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    os.write(2, b"interrupted\n")
    os._exit(_INTERRUPTED)


def _show_missing_extra() -> None:
    from assay.local_stack.install_hint import install_hint

    print(f"error: the command needs the extra cli: {install_hint('cli')}", file=sys.stderr)  # noqa: T201 - click is missing


def _show_crash() -> None:
    """Print the traceback and ask for a report, if stderr is writable."""
    import contextlib
    import traceback

    from assay_cli.output.streams import discard_unwritten

    with contextlib.suppress(OSError):
        traceback.print_exc()
        print("error: Assay failed; please report this traceback", file=sys.stderr)  # noqa: T201 - click may be broken
    discard_unwritten()


if __name__ == "__main__":
    main()
