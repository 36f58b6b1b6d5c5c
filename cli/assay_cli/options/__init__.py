"""Options that commands share, by subject."""
