"""What every process of Assay has: settings, logs, redaction of secrets, failpoints for tests."""
