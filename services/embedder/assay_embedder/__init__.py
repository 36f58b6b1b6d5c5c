"""The embedder service: texts to vectors, pairs to cosines, batched across callers."""
