"""Benchmarks of the embedder: the service alone, and whole runs that need it."""
