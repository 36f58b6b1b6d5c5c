"""Event loops, tasks and threads that run the user's code."""
