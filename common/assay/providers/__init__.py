"""HTTP to providers of models: the client under their packages, and when they ask to be called again."""
