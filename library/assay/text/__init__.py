"""Text processing for metrics and output: folding, tokenizing, stemming, edit distances, escaping."""
