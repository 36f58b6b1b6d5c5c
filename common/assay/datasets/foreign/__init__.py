"""Formats of other tools: each module turns their records into plain ones."""
