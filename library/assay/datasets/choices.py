"""What users may choose about a dataset: names alone, so that a command line is checked without the readers."""

from __future__ import annotations

ON_BAD_CASE = ("refuse", "skip")
"""What may be done about a record that is wrong."""

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
"""What a spec's `format` may say: the formats of `assay.datasets.foreign`, in their order, after the plain ones."""
