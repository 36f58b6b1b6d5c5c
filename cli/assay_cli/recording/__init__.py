"""`--record` and `--record-verdicts`: files that later runs use in place of the agent and the judge."""
