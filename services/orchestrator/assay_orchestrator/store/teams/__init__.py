"""Queries about what belongs to a team: tokens, quotas, targets, audit, baselines, calibrations."""
