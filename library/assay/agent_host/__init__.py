"""Hosting the user's agent on the user's side: loading it, calling it and answering the orchestrator."""
