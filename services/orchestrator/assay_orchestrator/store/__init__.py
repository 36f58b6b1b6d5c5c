"""The store: every query of the tables that Assay makes.

`database` opens it, `schema` describes it, `migrations` bring older ones up to date; `datasets`, `runs`
and `results` hold every query under a name. A query takes a connection; `Database.read` and
`Database.write` run it off the event loop, a write in one transaction.
"""
