"""The store: every query of Assay's tables.

`database` opens it, `schema` describes the tables, and `migrations` create and update them. The folders hold the
queries by subject. A query takes a connection; `Database.read` and `Database.write` run it off the event loop, a write
in one transaction.
"""
