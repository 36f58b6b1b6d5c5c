"""Comparisons of runs: joined by case, tested and decided, without grpc and stubs."""
