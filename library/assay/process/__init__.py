"""The parts of every Assay process: settings, logs, redaction of secrets, failpoints for tests."""
