"""From a rubric and material to a prompt, and from a reply to a checked verdict; the cache of verdicts."""
