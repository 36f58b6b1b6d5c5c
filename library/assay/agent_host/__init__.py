"""The user's agent on the user's side: found, called, and served to the orchestrator that asks."""
