"""Assay: shared scoring infrastructure for LLM agents."""

import os

from assay.version import __version__

# gRPC reads this when it is imported, which any module below this package may do first; its own log
# lines (GOAWAY and the like) mean nothing to a user.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

__all__ = ["__version__"]
