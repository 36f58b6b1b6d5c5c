"""The judge's database: verdicts and spending, in a SQLite file or, shared by all replicas, in PostgreSQL."""
