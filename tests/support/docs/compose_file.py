"""docker-compose.yml for tests: the command, environment and mounts of each container."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
VARIABLE = re.compile(r"\$\{(\w+)(?::([-?])([^}]*))?\}")
LIVE = re.sub(r"^#.*$", "", TEXT, flags=re.MULTILINE)
FILE = yaml.safe_load(VARIABLE.sub(lambda found: found[3] if found[2] == "-" else f"<{found[1]}>", LIVE))
"""The parsed file, with the defaults of its variables and <NAME> for required ones."""
SERVICES: dict[str, dict[str, Any]] = FILE["services"]
IMAGES = {
    name: service["build"]["dockerfile"].split("/")[1] for name, service in SERVICES.items() if "build" in service
}
"""The Assay image of each service, named after its folder in services/."""
TASKS = ("certificates", "migrate", "bootstrap")
"""Services that run once and exit."""


def dockerfile(kind: str) -> str:
    """Return the Dockerfile of an image with continued lines joined."""
    return (ROOT / "services" / kind / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")


def image_environment(kind: str) -> dict[str, str]:
    """Return the environment variables that an image sets."""
    (assigned,) = re.findall(r"^ENV (ASSAY.*|PATH.*)$", dockerfile(kind), re.MULTILINE)
    return dict(pair.split("=", 1) for pair in assigned.split())


def program(name: str) -> list[str]:
    """Return the program that a container runs, without its arguments."""
    given = SERVICES[name].get("entrypoint")
    if given is not None:
        return list(given)
    (words,) = re.findall(r"^ENTRYPOINT \[(.*)\]$", dockerfile(IMAGES[name]), re.MULTILINE)
    return re.findall(r'"([^"]*)"', words)


def mounts(name: str) -> list[tuple[str, str, bool]]:
    """Return the mounts of a container: source, target, and whether the mount is writable."""
    parts = [each.split(":") for each in SERVICES[name].get("volumes", [])]
    return [(source, target, "ro" not in more) for source, target, *more in parts]
