"""What the judge stores: verdicts, and what runs spend; in a file, or for all replicas in PostgreSQL."""
