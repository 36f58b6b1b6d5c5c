"""Telemetry of a process: instruments for Prometheus, spans for OpenTelemetry, the context of log lines."""
