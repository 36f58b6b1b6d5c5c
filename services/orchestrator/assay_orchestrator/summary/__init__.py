"""Summaries of runs: folded over stored rows, final or partial, by group, with gates and judging figures."""
