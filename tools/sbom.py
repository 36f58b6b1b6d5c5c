"""Write the bill of materials of an image: python tools/sbom.py IMAGE PYTHON FILE.

The file is CycloneDX JSON. It lists every distribution installed for PYTHON, with version, licences and dependencies,
but neither Python itself nor the Debian packages of the base image. The same packages give the same file. Needs
cyclonedx-bom in the environment that runs this script.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

SCHEMA_VERSION = "1.6"


def main(image: str, python: str, target: Path) -> None:
    """Write the file, or exit with an error if it does not match the schema."""
    options = ["--output-reproducible", "--no-validate", "--output-format", "JSON", "--spec-version", SCHEMA_VERSION]
    listed = subprocess.run(
        [sys.executable, "-m", "cyclonedx_py", "environment", *options, python], check=True, capture_output=True
    )
    document = of_image(image, json.loads(listed.stdout))
    text = json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    if problem := problem_of(text):
        sys.exit(f"the bill of materials of {image} does not fit the schema: {problem}")
    target.write_text(text, encoding="utf-8")


def of_image(image: str, document: dict[str, Any]) -> dict[str, Any]:
    """Return a document that describes the image: its version is Assay's, its parts are the components."""
    components = document["components"]
    (assay,) = (component for component in components if component["name"] == "assay-scoring")
    name = f"assay-{image}"
    top = {"type": "container", "name": name, "version": assay["version"], "bom-ref": name}
    parts = {"ref": name, "dependsOn": sorted(component["bom-ref"] for component in components)}
    metadata = {**document["metadata"], "component": top}
    return {**document, "metadata": metadata, "dependencies": [parts, *document["dependencies"]]}


def problem_of(text: str) -> str:
    """Return why a document violates the CycloneDX schema; empty if it is valid."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    problem = JsonStrictValidator(SchemaVersion.from_version(SCHEMA_VERSION)).validate_str(text)
    return "" if problem is None else str(problem)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
