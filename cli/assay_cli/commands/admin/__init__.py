"""`assay admin`: teams, tokens, quotas, targets and the audit of a shared installation."""
