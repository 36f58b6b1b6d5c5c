"""The user's answers: as plain data, as streamed text, as messages, and kept until they are stored."""
