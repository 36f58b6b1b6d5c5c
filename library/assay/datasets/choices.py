"""Users' options for a dataset: names alone, so that a command line is checked without importing the readers."""

from __future__ import annotations

ON_BAD_CASE = ("refuse", "skip")
"""The ways to treat an invalid record."""

FORMAT_NAMES = (
    "plain",
    "prompt-benchmark",
    "promptfoo",
    "adk",
    "openai-evals",
    "inspect",
    "ragas",
    "deepeval",
    "mlflow",
    "langsmith",
    "pydantic-evals",
    "llama-index",
    "pairwise",
    "assay-results",
)
"""The values of a spec's `format`: the plain formats, then those of `assay.datasets.foreign` in their order."""
