"""Write the bill of materials of an image: python tools/sbom.py IMAGE PYTHON FILE.

CycloneDX as JSON: every distribution that PYTHON has installed, with its version, licences and dependencies, as parts
of the image. It needs cyclonedx-bom in the environment that runs it. The same packages give the same file. What the
base of the image brings along, Debian packages and Python itself, is not in it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

SCHEMA_VERSION = "1.6"


def main(image: str, python: str, target: Path) -> None:
    """Write the file, once it fits the schema."""
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
    """Return a document whose components are parts of an image, which has Assay's version."""
    components = document["components"]
    (assay,) = (each for each in components if each["name"] == "assay-scoring")
    name = f"assay-{image}"
    top = {"type": "container", "name": name, "version": assay["version"], "bom-ref": name}
    parts = {"ref": name, "dependsOn": sorted(each["bom-ref"] for each in components)}
    metadata = {**document["metadata"], "component": top}
    return {**document, "metadata": metadata, "dependencies": [parts, *document["dependencies"]]}


def problem_of(text: str) -> str:
    """Return what is wrong with a document by its schema, which comes with the package; empty where nothing is."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    found = JsonStrictValidator(SchemaVersion.from_version(SCHEMA_VERSION)).validate_str(text)
    return "" if found is None else str(found)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
