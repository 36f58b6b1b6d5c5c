"""Queries about the rows of runs: answers, results, filters, costs."""
