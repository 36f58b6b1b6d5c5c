"""The inputs and tests of a judge: rubrics, canaries, recorded verdicts, prices."""
