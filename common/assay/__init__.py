"""Assay: shared scoring infrastructure for LLM agents."""

from assay.version import __version__

__all__ = ["__version__"]
