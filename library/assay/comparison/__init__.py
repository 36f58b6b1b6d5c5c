"""Whether one variant is better than another: runs joined by case, tested, and decided. Neither grpc nor stubs."""
