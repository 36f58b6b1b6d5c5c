"""The engine: assigns the shards of runs to workers.

`dispatcher` is the protocol of dispatchers, `embedded` dispatches within a process, `queue` over PostgreSQL. `worker`
starts and ends shards; the pipeline runs their rows.
"""
