"""Checks that a dataset's cases bring along, and those that cannot be made."""
