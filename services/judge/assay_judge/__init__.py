"""The judge service: answers to verdicts of a language model, each one checked before it counts."""
