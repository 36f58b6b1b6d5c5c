"""`assay run --resume`: a run keeps what it was started with, whatever spec and options say now."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from assay.errors import AssayError, SpecError
from assay.model.run_settings import CaseSelection
from assay.model.settings_differences import differing_settings
from assay.text.unsafe_text import clean

if TYPE_CHECKING:
    from collections.abc import Callable

    from assay.datasets import DatasetInfo
    from assay.model.run import Run
    from assay.model.run_settings import RunSettings
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
"""By setting: the parameters of `assay run` that change it; --set alone changes all others."""
_DATASET_KEYS = frozenset(("dataset", "map", "format", "encoding", "on_bad_case"))
_NAMES_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Resumption:
    """Which run a command resumes, and what a run of its spec and options would be.

    Args:
        reference: The run, as the user named it.
        settings: Of a run of the spec with the options.
        changed: The names of the settings that the options change; None where that is not known.
        options: The options that are given, by the name of their parameter.
        keys: The first parts of the keys that --set names.
    """

    reference: str
    settings: RunSettings
    changed: frozenset[str] | None
    options: dict[str, str]
    keys: frozenset[str] = frozenset()

    def check(self, stored: Run) -> None:
        """Refuse options that would have no effect; say where the spec differs from what the run was started with.

        Raises:
            SpecError: The run asks another agent, or an option differs from what it was started with.
        """
        if stored.settings.agent.target != self.settings.agent.target:
            raise SpecError(
                f"run {stored.run_id} asks the agent {stored.settings.agent.target!r}, and this spec names "
                f"{self.settings.agent.target!r}: resume it with the spec that started it"
            )
        differing = differing_settings(stored.settings, self.settings)
        refused = [name for name in differing if self.changed is None or name in self.changed]
        given = list(dict.fromkeys(option for name in refused for option in self._options_of(name)))
        if given:
            raise SpecError(
                f"{' and '.join(given)} {'has' if len(given) == 1 else 'have'} no effect on run {stored.run_id}, which "
                f"was started with other values of {_listed(refused)}: leave out what differs, or start a new run "
                "without --resume"
            )
        if differing:
            click.echo(
                f"note: run {clean(stored.run_id)} keeps what it was started with, which differs from this spec in "
                f"{clean(_listed(differing))}",
                err=True,
            )

    def _options_of(self, name: str) -> list[str]:
        root = name.partition(".")[0]
        given = [one for one in _OPTIONS.get(root, ("overrides",)) if one in self.options]
        keys = _DATASET_KEYS if root == "dataset" else {root}
        named = [one for one in given if one != "overrides" or not self.keys.isdisjoint(keys)]
        return [self.options[one] for one in named or given]  # a key such as preset changes others, too


def resumption_of(
    context: click.Context, reference: str, spec: Spec, info: DatasetInfo, load_without_options: Callable[[], Spec]
) -> Resumption:
    """Return what a command that resumes a run asks for.

    Args:
        context: Of the command.
        reference: The run, as the user named it.
        spec: The spec with the command's options.
        info: Its dataset.
        load_without_options: Returns the spec as it is in its file.
    """
    from assay.client.run_driver import settings_of_run

    settings = settings_of_run(spec, info)
    if failed_of := str(context.params.get("failed_of") or ""):  # the cases of a run that is resumed are not looked for
        selection = replace(settings.selection or CaseSelection(), failed_of=failed_of)
        settings = replace(settings, selection=selection)
    options = {
        str(parameter.name): parameter.opts[0]
        for parameter in context.command.params
        if context.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE
    }
    keys = frozenset(str(each).partition("=")[0].strip().partition(".")[0] for each in context.params["overrides"])
    return Resumption(reference, settings, _changed(spec, settings, load_without_options), options, keys)


def _changed(spec: Spec, settings: RunSettings, load_without_options: Callable[[], Spec]) -> frozenset[str] | None:
    """Return the names of the settings that options change; None where the spec is wrong without them."""
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
