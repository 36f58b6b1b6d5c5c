"""`assay run --resume`: a resumed run keeps its stored settings, whatever spec and options say now."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from assay.errors import AssayError, SpecError
from assay.model.run_spec import CaseSelection
from assay.model.settings_differences import differing_settings
from assay.text.unsafe_text import clean

if TYPE_CHECKING:
    from collections.abc import Callable

    from assay.datasets import DatasetInfo
    from assay.model.run import Run
    from assay.model.run_spec import RunSpec
    from assay.specs.model import Spec

_OPTIONS = {
    "dataset": ("dataset", "dataset_format", "mapping", "on_bad_case", "overrides"),
    "selection": ("cases", "tags", "categories", "failed_of", "quick", "limit"),
    "metrics": ("metrics", "overrides"),
    "repeats": ("repeats", "overrides"),
    "name": ("name", "overrides"),
    "note": ("note", "overrides"),
    "labels": ("labels", "overrides"),
}
"""Parameters of `assay run` that change a setting, by setting; --set alone changes all others."""
_DATASET_KEYS = frozenset(("dataset", "map", "format", "encoding", "on_bad_case"))
_NAMES_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Resumption:
    """The run that a command resumes, and the settings that its spec and options would give a new run.

    Args:
        reference: The run, as the user named it.
        settings: Settings of a new run from the spec and the options.
        changed: Names of the settings that the options change; None if unknown.
        options: The given options, by parameter name.
        keys: First parts of the keys in --set.
    """

    reference: str
    settings: RunSpec
    changed: frozenset[str] | None
    options: dict[str, str]
    keys: frozenset[str] = frozenset()

    def check(self, stored: Run) -> None:
        """Refuse options without an effect, and note where the spec differs from the stored run.

        Raises:
            SpecError: The run calls another agent, or an option differs from the run's settings.
        """
        if stored.spec.agent.target != self.settings.agent.target:
            raise SpecError(
                f"run {stored.run_id} calls the agent {stored.spec.agent.target!r}, and this spec names "
                f"{self.settings.agent.target!r}: resume it with the spec that started it"
            )
        differing = differing_settings(stored.spec, self.settings)
        refused = [name for name in differing if self.changed is None or name in self.changed]
        options = list(dict.fromkeys(option for name in refused for option in self._options_of(name)))
        if options:
            raise SpecError(
                f"{' and '.join(options)} {'has' if len(options) == 1 else 'have'} no effect on run {stored.run_id}, "
                f"which was started with other values of {_listed(refused)}: leave out what differs, or start a new "
                "run without --resume"
            )
        if differing:
            click.echo(
                f"note: run {clean(stored.run_id)} keeps its settings, which differ from this spec in "
                f"{clean(_listed(differing))}",
                err=True,
            )

    def _options_of(self, name: str) -> list[str]:
        root = name.partition(".")[0]
        options = [option for option in _OPTIONS.get(root, ("overrides",)) if option in self.options]
        keys = _DATASET_KEYS if root == "dataset" else {root}
        named = [option for option in options if option != "overrides" or not self.keys.isdisjoint(keys)]
        return [self.options[option] for option in named or options]  # a key such as preset changes others, too


def resumption_of(
    context: click.Context,
    reference: str | None,
    spec: Spec,
    info: DatasetInfo,
    load_without_options: Callable[[], Spec],
) -> Resumption | None:
    """Return the run that the command resumes; None if it starts a new one.

    Args:
        context: Context of the command.
        reference: The run, as the user named it; None for a new run.
        spec: The spec with the command's options.
        info: Dataset of the spec.
        load_without_options: Loads the spec without the options.
    """
    if reference is None:
        return None
    from assay.client.run_driver import settings_of_run

    settings = settings_of_run(spec, info)
    if failed_of := str(context.params.get("failed_of") or ""):  # a resumed run keeps its cases
        selection = replace(settings.selection or CaseSelection(), failed_of=failed_of)
        settings = replace(settings, selection=selection)
    options = {
        str(parameter.name): parameter.opts[0]
        for parameter in context.command.params
        if context.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE
    }
    keys = frozenset(
        str(override).partition("=")[0].strip().partition(".")[0] for override in context.params["overrides"]
    )
    return Resumption(reference, settings, _changed(spec, settings, load_without_options), options, keys)


def _changed(spec: Spec, settings: RunSpec, load_without_options: Callable[[], Spec]) -> frozenset[str] | None:
    """Return the names of the settings that options change; None if the spec is invalid without them."""
    try:
        plain = load_without_options()
    except AssayError:
        return None
    is_same_dataset = all(
        getattr(plain, name) == getattr(spec, name)
        for name in ("dataset", "dataset_map", "dataset_encoding", "dataset_format", "on_bad_case")
    )
    without = replace(plain.settings, dataset=settings.dataset if is_same_dataset else None)
    return frozenset(differing_settings(without, settings))


def _listed(names: list[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
