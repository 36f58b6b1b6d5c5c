"""The `assay` command: submits runs, hosts client-side agents, shows what happens, writes reports."""
