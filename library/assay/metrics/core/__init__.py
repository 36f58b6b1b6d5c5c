"""What all metrics share: scores, evidence, the scores and the verdict of a row, folds over rows."""
