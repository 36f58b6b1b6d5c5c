"""The orchestrator service: accepts runs, streams cases through agents and metrics, stores results."""
