"""Texts on their way through a model: admission, queues, batches and threads."""
