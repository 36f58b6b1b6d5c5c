"""The shared part of every service's store: the two databases, outages, migrations, texts and times.

A service describes its own tables (`ServiceTables`), holds its queries and its numbered migrations, and opens its
database with `open_database`. A query takes a connection; `Database.read` and `Database.write` run it off the event
loop, a write in one transaction. Only services import this package: it needs SQLAlchemy.
"""
