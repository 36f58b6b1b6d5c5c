"""The client of model providers for agents and judges: requests, replies, refusals and retries."""
