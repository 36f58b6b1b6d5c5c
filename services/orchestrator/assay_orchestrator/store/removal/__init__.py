"""Queries that delete: runs, expired data and everything of a team."""
