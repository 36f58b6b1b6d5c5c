"""Evidence for metrics: vectors from the embedder, verdicts from the judge service or from a recorded file."""
