"""One verdict from request to outcome."""
