"""Options of commands, by subject."""
