"""Spans of an agent: received or read from a file, and joined to the answer by trace id."""
