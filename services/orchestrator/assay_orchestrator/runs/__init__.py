"""Runs: creation, admission, planning, start, pause, resume, retry and deletion.

`manager` owns the runs of this process; `planner` builds the context of a stored run's shards; `agent_hosts` attaches
the clients that answer for Python agents; `peers` follows the other processes of a shared database.
"""
