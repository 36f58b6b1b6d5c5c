"""The engine: which worker takes which shard of which run, and what it does with it.

`dispatcher` says what dispatching promises; `embedded` keeps it within one process, `queue` on PostgreSQL, through
procrastinate. `worker` takes shards to their end, `session` is what the shards of one run in one process share,
`slots` limits their questions in flight.
"""
