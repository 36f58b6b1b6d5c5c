"""Filters: conditions on rows and runs, as objects, as the text that users write, and as a test of one row.

The text is described in docs/filters.md. The HTML report reads the same text in the browser.
"""
