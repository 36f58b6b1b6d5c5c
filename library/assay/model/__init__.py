"""The plain objects of an evaluation: cases, what agents are asked and answer, runs, rows and summaries."""
