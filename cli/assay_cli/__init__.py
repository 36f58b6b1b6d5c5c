"""The `assay` command: submits runs, hosts the user's agents, shows progress and writes reports."""
