"""The part that every service's store shares: the two databases, outages, migrations, texts and times.

A service declares its tables (`ServiceTables`), has its own queries and numbered migrations, and opens its database
with `open_database`. A query takes a connection; `Database.read` and `Database.write` run it off the event loop, a
write in one transaction. Only services import this package, because it needs SQLAlchemy.
"""
