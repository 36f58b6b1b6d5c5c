"""A comparison with everything that its reports show."""
