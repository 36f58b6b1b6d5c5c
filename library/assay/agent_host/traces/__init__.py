"""Spans that an agent emits while it answers: received or read from a file, and joined to the answer by trace id."""
