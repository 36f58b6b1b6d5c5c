"""Protection of the command from the user's agent in the same process: forks and `os._exit`."""
