"""What agents are asked and what they answer, as plain objects, and the names under which others write it."""
