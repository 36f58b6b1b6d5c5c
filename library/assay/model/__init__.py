"""The data model of an evaluation: cases, requests to agents, their answers, runs, rows and summaries."""
