"""Agents of frameworks, called in process on the user's side: one module a framework, imported when it is used."""
