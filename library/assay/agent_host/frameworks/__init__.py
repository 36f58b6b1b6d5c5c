"""Agents of frameworks, called in process on the user's side; each framework's module is imported on demand."""
