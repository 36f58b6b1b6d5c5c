"""Event loops, tasks and threads in which the user's code runs."""
