"""`assay init`: write a spec, a dataset and an agent that run unchanged."""

from __future__ import annotations

import os
import shlex
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import click

from assay.errors import InvalidInputError, Problem, SetupError
from assay.parsing.names import unknown_name
from assay.specs.presets import PRESETS
from assay.text.unsafe_text import clean

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_DEFAULT = "prompt-benchmark"
_METRIC_ENTRIES = """
next: add them to `metrics` of the assay.yaml in the same folder, then `assay validate`:

metrics:
  - helpfulness: {function: "metrics:helpfulness", threshold: 0.5}
  - "metrics:is_brief\""""


@click.command()
@click.argument("preset", required=False)
@click.option(
    "--dir", "folder", type=click.Path(path_type=Path), default=Path(), help="Target folder; default: the current one."
)
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@click.option("--list", "only_list", is_flag=True, help="List the presets without writing anything.")
@click.option("--metric", is_flag=True, help="Write only metrics.py, a starting point for Python metrics.")
def init(preset: str | None, folder: Path, force: bool, only_list: bool, metric: bool) -> int:
    """Write a commented assay.yaml, a small dataset and an agent for PRESET; they run unchanged, offline.

    The default PRESET is prompt-benchmark. Existing files are overwritten only with --force.
    """
    if metric:
        if preset is not None or only_list:
            raise click.UsageError("--metric writes metrics.py alone: leave out PRESET and --list")
        template = resources.files("assay_cli") / "templates" / "metrics.py"
        _write_new(folder, {"metrics.py": template.read_text(encoding="utf-8")}, force=force)
        click.echo(_METRIC_ENTRIES)
        return 0
    templates = _templates()
    if only_list:
        click.echo(_listing(templates))
        return 0
    chosen = preset or _DEFAULT
    if chosen not in templates:
        raise InvalidInputError([Problem(unknown_name("preset", chosen, templates))])
    _write_new(folder, templates[chosen], force=force)
    if preset is None:
        click.echo(f"\n{_listing(templates)}")
    click.echo(f"\nnext: assay run {clean(shlex.quote(str(folder / 'assay.yaml')))}")
    return 0


def _write_new(folder: Path, files: dict[str, str], *, force: bool) -> None:
    """Write files and print their names; existing files are overwritten only with `force`.

    Raises:
        InvalidInputError: Files exist already; lists every problem.
    """
    if folder.exists() and not folder.is_dir():
        raise InvalidInputError([Problem("is not a folder: name another with --dir", file=str(folder))])
    existing = [name for name in files if os.path.lexists(folder / name)]
    if existing and not force:
        raise InvalidInputError(
            [
                Problem("exists: --force overwrites it, --dir chooses another folder", file=str(folder / name))
                for name in existing
            ]
        )
    _write(folder, files)
    for name in files:
        click.echo(f"wrote {clean(str(folder / name))}")


def _templates() -> dict[str, dict[str, str]]:
    """Return the files of every preset, name to content."""
    root = resources.files("assay_cli") / "templates"
    return {name: _files(root / name) for name in PRESETS if (root / name).is_dir()}


def _files(folder: Traversable) -> dict[str, str]:
    names = sorted(item.name for item in folder.iterdir() if item.is_file())
    return {name: (folder / name).read_text(encoding="utf-8") for name in names}


def _listing(templates: dict[str, dict[str, str]]) -> str:
    width = max(map(len, templates))
    return "\n".join(["presets:", *(f"  {name:<{width}}  {PRESETS[name].summary}" for name in templates)])


def _write(folder: Path, files: dict[str, str]) -> None:
    from assay.reports.atomic import atomic_writer

    for name, content in files.items():
        path = folder / name
        if path.is_dir() and not path.is_symlink():
            raise SetupError(f"{path} is a folder: remove it, or choose another place with --dir")
        with atomic_writer(path, option="--dir") as file:
            file.write(content)
