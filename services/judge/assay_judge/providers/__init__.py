"""The providers of models, one module per provider, behind a common protocol."""
