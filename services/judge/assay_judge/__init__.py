"""The judge service: a language model grades answers, and every verdict is checked before it counts."""
