"""`--record` and `--record-verdicts`: files that replace the agent and the judge in later runs."""
