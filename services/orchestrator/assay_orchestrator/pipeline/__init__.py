"""The pipeline of a shard: a row enters when a slot is free, is answered, stored, given evidence, scored and stored.

`session` is what the shards of one run in one process share, `run_context` what the run needs, `shard_runner` takes
the rows of one shard to their results, `flusher` stores them in batches.
"""
