"""Verdicts of judges and juries: structured verdicts, jury scores, and agreement."""
