"""Vectors kept in memory and on disk."""
