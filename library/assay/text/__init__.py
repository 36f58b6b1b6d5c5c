"""Texts for metrics and terminals: folding, words, stems, edit distances, escapes."""
