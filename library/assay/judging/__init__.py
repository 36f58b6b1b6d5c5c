"""What a judge is given and is tested with: rubrics, canaries, recorded verdicts, prices."""
