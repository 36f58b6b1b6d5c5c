"""Answers of the user's agent: plain data, streamed text and messages, kept until they are stored."""
