"""The document of a run: the source of all reports."""
