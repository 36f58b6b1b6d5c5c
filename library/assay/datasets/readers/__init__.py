"""Readers of files and objects: each yields records with their place."""
