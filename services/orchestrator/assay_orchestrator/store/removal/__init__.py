"""Queries that delete: runs, expired data and all data of a team."""
