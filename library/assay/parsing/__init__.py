"""Parsing user input: strict YAML and JSON with positions, durations, shares and names."""
