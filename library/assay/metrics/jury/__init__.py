"""Verdicts of several judges as one: agreement, scores, structured verdicts."""
