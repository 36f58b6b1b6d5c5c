"""The command's entry: `assay`, or `python -m assay_cli`."""

from __future__ import annotations

import gc
import os
import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit with its status."""
    gc.set_threshold(50_000)  # imports make no garbage, and collecting meanwhile takes a tenth of a short command
    # gRPC's own log lines are for its developers; set before anything imports it.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from assay_cli.commands import assay
    from assay_cli.failures import exit_status

    sys.exit(exit_status(assay))


if __name__ == "__main__":
    main()
