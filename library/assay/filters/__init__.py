"""Filters of rows and runs: as objects, as text that users write, and as a test of one row.

docs/filters.md describes the text. The HTML report reads the same text in the browser.
"""
