"""Render deploy/ as `kubectl apply -k` would, and check every manifest against the API of Kubernetes.

    python tools/check_manifests.py        as `make test-deploy`, with kubernetes-validate in the same environment

It needs kubectl or kustomize on PATH, and no cluster. Kinds of KEDA have no schema here and are rendered alone.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).resolve().parent.parent / "deploy"
VERSIONS = ("1.31", "1.35")
"""The oldest and the newest version of Kubernetes whose API is checked."""
WITH_QUEUE_DEPTH = """\
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [{overlay}]
components: [{component}]
"""


def main() -> int:
    """Check all overlays; return 0 if all are right, 1 if not, 2 where nothing renders them."""
    command = renderer()
    if not command:
        sys.stderr.write("checking deploy/ needs kubectl or kustomize on PATH\n")
        return 2
    problems = [
        problem
        for name, folder in rendered_folders()
        for manifest in rendered(command, folder)
        for problem in problems_of(name, manifest)
    ]
    sys.stdout.writelines(f"{problem}\n" for problem in problems)
    sys.stdout.write(f"{len(problems)} problems, Kubernetes {' and '.join(VERSIONS)}\n")
    return 1 if problems else 0


def renderer() -> list[str]:
    """Return the command that renders a folder; empty where there is none."""
    if shutil.which("kubectl"):
        return ["kubectl", "kustomize"]
    return ["kustomize", "build"] if shutil.which("kustomize") else []


def rendered_folders() -> list[tuple[str, str]]:
    """Return the name and the folder of what is rendered: the base, each overlay, and the CPU's with the component."""
    overlays = [(f"overlays/{path.name}", str(path)) for path in sorted((DEPLOY / "overlays").iterdir())]
    return [("base", str(DEPLOY / "base")), *overlays, ("queue-depth", "")]


def rendered(command: list[str], folder: str) -> list[dict[str, Any]]:
    """Return the manifests of a folder; without one, those of the CPU's overlay with the component of the queue."""
    if folder:
        return _rendered(command, folder)
    with tempfile.TemporaryDirectory(dir=DEPLOY) as made:
        text = WITH_QUEUE_DEPTH.format(overlay="../overlays/cpu", component="../components/queue-depth")
        (Path(made) / "kustomization.yaml").write_text(text, encoding="utf-8")
        return _rendered(command, made)


def _rendered(command: list[str], folder: str) -> list[dict[str, Any]]:
    done = subprocess.run([*command, folder], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{folder}: {done.stderr}")
    return list(yaml.safe_load_all(done.stdout))


def problems_of(where: str, manifest: dict[str, Any]) -> list[str]:
    """Return what is wrong with a manifest: unknown and misspelt fields, too."""
    import kubernetes_validate  # type: ignore[import-not-found]  # in the environment of `make test-deploy` alone

    if manifest["apiVersion"].startswith("keda.sh/"):
        return []
    name = f"{where}: {manifest['kind']} {manifest['metadata']['name']}"
    found = []
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(manifest, version, strict=True)
        except kubernetes_validate.ValidationError as problem:
            found.append(f"{name} ({version}): {problem.message}")
    return found


if __name__ == "__main__":
    sys.exit(main())
