"""Agents that are programs: their processes, and the JSON that they read and write."""
