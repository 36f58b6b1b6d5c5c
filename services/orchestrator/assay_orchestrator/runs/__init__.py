"""Runs: created, admitted, planned, started, paused, resumed, retried and deleted.

`manager` owns the runs of this process; `planner` turns a stored run into what its shards work with; `agent_hosts`
attaches the clients that answer for Python agents; `peers` follows the other processes of a shared database.
"""
