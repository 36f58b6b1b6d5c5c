"""Embedding models: found, checked, loaded, verified and run."""
