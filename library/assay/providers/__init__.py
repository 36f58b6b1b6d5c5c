"""One client of providers of models for agents and judges: requests, replies, refusals, and when to call again."""
