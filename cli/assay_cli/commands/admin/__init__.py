"""`assay admin`: teams, tokens, quotas, destinations and the audit of a shared installation."""
