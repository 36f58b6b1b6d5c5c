"""The user's agent in the command's own process: forks, `os._exit`."""
