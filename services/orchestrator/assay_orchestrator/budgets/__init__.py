"""Budgets: a run's share of its team's money and tokens, reserved before a call and settled after it."""
