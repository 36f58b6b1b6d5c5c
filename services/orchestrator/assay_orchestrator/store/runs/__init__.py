"""Queries about runs, their states and their datasets."""
