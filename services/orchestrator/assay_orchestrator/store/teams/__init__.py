"""Queries about what belongs to a team: tokens, quotas, destinations, audit, baselines, calibrations."""
