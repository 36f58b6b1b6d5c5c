"""The engine: which worker takes which shard of which run.

`dispatcher` is the protocol of dispatchers, `embedded` the one within a process, `queue` the one over PostgreSQL.
`worker` starts and ends shards; their rows are the pipeline's.
"""
