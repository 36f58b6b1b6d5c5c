"""Reading what people write: strict YAML and JSON with positions, durations, percentages, names."""
