"""Shared parts of metrics: base classes, scores, evidence, row verdicts and folds."""
