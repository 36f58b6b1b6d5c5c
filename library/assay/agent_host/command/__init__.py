"""Agents that are programs: their processes and their JSON protocol."""
