"""Values of records: read as the kind of value that their field holds."""
