"""Render deploy/ as `kubectl apply -k` would, and check every manifest against the Kubernetes API.

    python tools/check_manifests.py        as `make test-deploy`, with kubernetes-validate in the same environment

Needs kubectl or kustomize on PATH, and no cluster. Resources of KEDA, the Gateway API and the Prometheus operator are
rendered; they are checked only if ASSAY_CRD_SCHEMAS names a folder with their CustomResourceDefinitions.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).resolve().parent.parent / "deploy"
VERSIONS = ("1.31", "1.35")
"""The oldest and the newest Kubernetes version to check against."""
OTHERS = ("keda.sh/", "gateway.networking.k8s.io/", "monitoring.coreos.com/")
"""API groups that Kubernetes itself does not define."""
WITH_COMPONENT = """\
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../overlays/cpu]
components: [../components/{component}]
"""


def main() -> int:
    """Check all overlays; return 0 if all are valid, 1 if not, 2 if no program can render them."""
    command = renderer()
    if not command:
        sys.stderr.write("checking deploy/ needs kubectl or kustomize on PATH\n")
        return 2
    problems = [
        problem
        for name, folder in rendered_folders()
        for manifest in rendered(command, name, folder)
        for problem in problems_of(name, manifest)
    ]
    sys.stdout.writelines(f"{problem}\n" for problem in problems)
    sys.stdout.write(f"{len(problems)} problems, Kubernetes {' and '.join(VERSIONS)}\n")
    return 1 if problems else 0


def renderer() -> list[str]:
    """Return the command that renders a folder; empty if neither program is installed."""
    if shutil.which("kubectl"):
        return ["kubectl", "kustomize"]
    return ["kustomize", "build"] if shutil.which("kustomize") else []


def rendered_folders() -> list[tuple[str, str]]:
    """Return names and folders to render: the base, each overlay, and each component, which has no folder."""
    overlays = [(f"overlays/{path.name}", str(path)) for path in sorted((DEPLOY / "overlays").iterdir())]
    components = [(path.name, "") for path in sorted((DEPLOY / "components").iterdir())]
    return [("base", str(DEPLOY / "base")), *overlays, *components]


def rendered(command: list[str], name: str, folder: str) -> list[dict[str, Any]]:
    """Return the manifests of a folder; without a folder, those of overlays/cpu with the named component."""
    if folder:
        return _rendered(command, folder)
    with tempfile.TemporaryDirectory(dir=DEPLOY) as overlay:
        text = WITH_COMPONENT.format(component=name)
        (Path(overlay) / "kustomization.yaml").write_text(text, encoding="utf-8")
        return _rendered(command, overlay)


def _rendered(command: list[str], folder: str) -> list[dict[str, Any]]:
    done = subprocess.run([*command, folder], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{folder}: {done.stderr}")
    return list(yaml.safe_load_all(done.stdout))


def problems_of(where: str, manifest: dict[str, Any]) -> list[str]:
    """Return the problems of a manifest, unknown and misspelt fields included."""
    import kubernetes_validate  # type: ignore[import-not-found]  # in the environment of `make test-deploy` alone

    name = f"{where}: {manifest['kind']} {manifest['metadata']['name']}"
    if manifest["apiVersion"].startswith(OTHERS):
        return [f"{name}: {problem}" for problem in problems_by_definition(manifest)]
    problems = []
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(manifest, version, strict=True)
        except kubernetes_validate.ValidationError as problem:
            problems.append(f"{name} ({version}): {problem.message}")
    return problems


def problems_by_definition(manifest: dict[str, Any]) -> list[str]:
    """Return the problems of a manifest by the CustomResourceDefinition of its kind; none if no folder is named."""
    import jsonschema  # comes with kubernetes-validate

    folder, version = os.environ.get("ASSAY_CRD_SCHEMAS"), manifest["apiVersion"].rpartition("/")[2]
    files = sorted(Path(folder).glob("*.yaml")) if folder else []
    definitions = [document for file in files for document in yaml.safe_load_all(file.read_text(encoding="utf-8"))]
    schemas = [
        closed(served["schema"]["openAPIV3Schema"])
        for definition in definitions
        if definition["spec"]["names"]["kind"] == manifest["kind"]
        for served in definition["spec"]["versions"]
        if served["name"] == version and served["served"]
    ]
    if folder and not schemas:
        return [f"no definition in {folder} serves {manifest['apiVersion']}"]
    return [
        problem.message for schema in schemas for problem in jsonschema.Draft7Validator(schema).iter_errors(manifest)
    ]


def closed(schema: Any) -> Any:
    """Return a schema that refuses fields it does not name, as `kubectl apply` does."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    result = {key: closed(value) for key, value in schema.items()}
    if isinstance(result.get("properties"), dict) and "additionalProperties" not in result and result.get("properties"):
        is_open = schema.get("x-kubernetes-preserve-unknown-fields", False)
        result["additionalProperties"] = is_open
    return result


if __name__ == "__main__":
    sys.exit(main())
