"""The pipeline of a shard: a row enters when a slot is free, is answered, stored, given evidence, scored and stored.

`session` is what a run's shards share in one process, `run_context` what the run needs, `shard_runner` takes the rows
of a shard to their results, and `flusher` stores them in batches.
"""
