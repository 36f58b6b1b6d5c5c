"""Variants in `assay compare`: options, specs and runs."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import re
import tempfile
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, TypeVar

import click

from assay.errors import AssayError, InvalidInputError, Problem
from assay_cli.options.groups import GroupedCommand
from assay_cli.options.shared import connect, print_warnings
from assay_cli.output.streams import agent_stdout
from assay_cli.resume_hint import repeated_command

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from assay.agent_host.user_code import UserCode
    from assay.comparison.model import ComparisonSettings
    from assay.reports.document.report import Report
    from assay.specs.model import Spec
    from assay.specs.variants import Variant

    Environs = tuple[Mapping[str, str] | None, Mapping[str, str] | None]

F = TypeVar("F", bound="Callable[..., Any]")

_PRESET = "prompt-quality"
_OTHER_VERDICTS = 100_000  # above the repeats of any run
_SEVERAL = ("--prompts", "--models", "--agents")
"""Options that take several values in a row."""


class VariantsCommand(GroupedCommand):
    """A command whose `--prompts`, `--models` and `--agents` take all values up to the next option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Repeat the option before each value, as click expects."""
        return super().parse_args(ctx, _repeated(args))


def _repeated(args: Sequence[str]) -> list[str]:
    words: list[str] = []
    option, is_first = "", False
    for position, word in enumerate(args):
        if word == "--":
            return [*words, *args[position:]]
        if word.startswith("-") and word != "-":
            option, is_first = (word, True) if word in _SEVERAL else ("", False)
            words.append(word)
            continue
        words += [option, word] if option and not is_first else [word]
        is_first = False
    return words


@dataclass(frozen=True, slots=True)
class VariantOptions:
    """The options about variants; empty or None if an option is not given.

    Args:
        prompts: Prompt files, one per variant.
        models: Models, one per variant.
        agents: Targets of agents, one per variant.
        overrides: Overrides of the spec; a key with several values makes a variant per value.
        test_cases: The dataset; replaces the spec's.
        spec: Path of the spec.
        model: PROVIDER:MODEL, used without a spec.
        resume: Id of the group to continue.
        stop_early: Name of the stopping rule.
    """

    prompts: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    test_cases: Path | None = None
    spec: Path | None = None
    model: str = ""
    resume: str = ""
    stop_early: str = ""

    @property
    def is_given(self) -> bool:
        """Whether any option asks to run variants."""
        return self != VariantOptions()


def variant_options(command: F) -> F:
    """Add the options about variants; the command gets them as `variants`."""
    several = functools.partial(click.option, multiple=True)

    @several("--prompts", metavar="FILE...", help="Prompts to run and compare, the baseline first; default: none.")
    @several("--models", metavar="MODEL...", help="Models to run and compare, the baseline first; default: none.")
    @several(
        "--agents", metavar="TARGET...", help="Agents to run and compare, as `agent.target` in a spec; default: none."
    )
    @several(
        "--set",
        "overrides",
        metavar="KEY=VALUE",
        help="Override a value of the spec for all variants; a key of the agent with several values, as in --set "
        "agent.temperature=0 --set agent.temperature=1, makes a variant per value; repeatable.",
    )
    @click.option("--test-cases", type=click.Path(path_type=Path), help="Dataset to run over; default: the spec's.")
    @click.option(
        "--spec",
        type=click.Path(path_type=Path),
        help="Spec that the variants share, with `variants:` if no option names any; default: ./assay.yaml, else the "
        f"preset {_PRESET} with --model.",
    )
    @click.option("--model", default="", metavar="PROVIDER:MODEL", help="Model to call without a spec; default: none.")
    @click.option("--resume", default="", metavar="GROUP", help="Group of runs to continue; default: start new runs.")
    @click.option(
        "--stop-early",
        default="",
        metavar="RULE",
        help="Stop two variants once RULE has decided: always-valid or five-looks; default: run all cases.",
    )
    @functools.wraps(command)
    def choosing(*args: Any, **kwargs: Any) -> Any:
        names = VariantOptions.__dataclass_fields__
        chosen = VariantOptions(**{name: kwargs.pop(name) for name in names})
        return command(*args, variants=chosen, **kwargs)

    return choosing  # type: ignore[return-value]  # click passes what the command gets


def variant_specs(options: VariantOptions, environs: Environs = (None, None)) -> list[Spec]:
    """Return one checked spec per variant.

    Args:
        options: The command's options.
        environs: Environments of agent and judge, as in `load_spec`.

    Raises:
        click.UsageError: Options contradict each other, or something is missing.
        SpecError: A variant is wrong; lists every problem.
    """
    from assay.specs.loader import SPEC_FILE
    from assay.specs.variants import load_variants

    path = options.spec or (Path() if Path(SPEC_FILE).is_file() else None)
    base = path if path is not None and path.is_dir() else path.parent if path is not None else Path()
    variants, overrides = _variants(options, base)
    if path is None:
        data = _without_spec(options, has_variants=bool(variants))
        return load_variants(
            data, variants=variants, overrides=overrides, dataset=options.test_cases, environs=environs
        )
    if options.model:
        raise click.UsageError(f"--model is for a comparison without a spec, but there is {path / SPEC_FILE}: leave it "
                               "out, or write --set agent.target=MODEL")  # fmt: skip
    return load_variants(path, variants=variants, overrides=overrides, dataset=options.test_cases, environs=environs)


def same_twice(options: VariantOptions, environs: Environs = (None, None)) -> list[Spec]:
    """Return the spec twice; the second run gets its own verdicts, bypassing the cache.

    Raises:
        click.UsageError: Options name variants, or there is no spec.
        SpecError: The spec is wrong; lists every problem.
    """
    from assay.specs.loader import SPEC_FILE
    from assay.specs.variants import Variant, load_variants

    if options.prompts or options.models or options.agents:
        raise click.UsageError("--aa runs one variant twice: leave out --prompts, --models and --agents")
    path = options.spec or Path()
    if path.is_dir() and not (path / SPEC_FILE).is_file():
        raise click.UsageError("--aa runs a spec twice, and there is no assay.yaml here: name it with --spec")
    variants = [Variant("first", {}, "--aa"), Variant("second", {}, "--aa")]
    first, second = load_variants(
        path, variants=variants, overrides=options.overrides, dataset=options.test_cases, environs=environs
    )
    judges = tuple(
        judge if judge.recorded_file else dataclasses.replace(judge, sample_offset=_OTHER_VERDICTS)
        for judge in second.settings.judges
    )
    return [first, dataclasses.replace(second, settings=dataclasses.replace(second.settings, judges=judges))]


def _without_spec(options: VariantOptions, *, has_variants: bool) -> dict[str, Any]:
    """Return a spec for a comparison without a spec file."""
    provider, colon, model = (options.model or next(iter(options.models), "")).partition(":")
    if not has_variants or not colon or not model:
        raise click.UsageError(
            "there is no assay.yaml here: name the spec with --spec, or the prompts with --prompts and the model with "
            "--model PROVIDER:MODEL, such as openai:gpt-4o-mini"
        )
    if options.test_cases is None:
        raise click.UsageError("there is no assay.yaml here: name the dataset with --test-cases")
    return {"name": _PRESET, "preset": _PRESET, "agent": {"adapter": provider, "target": model}}


def _variants(options: VariantOptions, base: Path) -> tuple[list[Variant], tuple[str, ...]]:
    """Return the variants that options name, and the overrides that all share.

    Raises:
        click.UsageError: More than one option names variants.
    """
    from assay.specs.variants import Variant

    values: dict[str, list[str]] = {}
    for override in options.overrides:
        values.setdefault(override.partition("=")[0].strip(), []).append(override)
    varied = {key: choices for key, choices in values.items() if len(choices) > 1 and key.partition(".")[0] == "agent"}
    named = [f"--{name}" for name in ("prompts", "models", "agents") if getattr(options, name)]
    if len([*named, *varied]) > 1:
        both = " and ".join([*named, *(f"--set {key}" for key in varied)])
        raise click.UsageError(
            f"{both} each name variants: keep one, or list the variants in the spec (docs/variants.md)"
        )
    shared = tuple(override for key, choices in values.items() if key not in varied for override in choices)
    variants = [Variant(name, {"agent.prompt_file": os.path.relpath(file, base)}, f"--prompts {file}")
             for file, name in _prompt_names(options.prompts)]  # fmt: skip
    variants += [Variant(model, _model(model), f"--models {model}") for model in options.models]
    variants += [Variant(agent, _agent(agent), f"--agents {agent}") for agent in options.agents]
    variants += [_set_variant(override) for choices in varied.values() for override in choices]
    names = [variant.name for variant in variants]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InvalidInputError(
            [Problem("is given twice: variants need different names", f"variant {name}") for name in twice]
        )
    return variants, shared


def _prompt_names(files: Sequence[str]) -> list[tuple[str, str]]:
    """Return files with their display names: without folder and suffix if that is unique."""
    stems = [PurePath(file).stem for file in files]
    return [(file, stem if stems.count(stem) == 1 else file) for file, stem in zip(files, stems, strict=True)]


def _model(model: str) -> dict[str, Any]:
    from assay.specs.prompt_options import PROVIDERS

    provider, colon, name = model.partition(":")
    return (
        {"agent.adapter": provider, "agent.target": name}
        if colon and provider in PROVIDERS
        else {"agent.target": model}
    )


def _agent(agent: str) -> dict[str, Any]:
    from assay.model.frameworks import OBJECT_TARGET

    if agent.startswith(("http://", "https://")):
        adapter = "http"
    elif OBJECT_TARGET.fullmatch(agent) or not re.search(r"[ /]", agent):
        adapter = "python"
    else:
        adapter = "command"  # several words, or a file other than a Python function
    return {"agent.adapter": adapter, "agent.target": agent}


def _set_variant(override: str) -> Variant:
    from assay.parsing.yaml_nodes import YamlSyntaxError, parse_scalar
    from assay.specs.variants import Variant

    key, _, text = override.partition("=")
    try:
        value = parse_scalar(text)
    except YamlSyntaxError as problem:
        raise InvalidInputError([Problem(problem.message, f"--set {override}")]) from None
    return Variant(f"{key.strip().rpartition('.')[2]}={text.strip()}", {key.strip(): value}, f"--set {override}")


@asynccontextmanager
async def reports_of_variants(
    options: VariantOptions,
    specs: Sequence[Spec],
    settings: ComparisonSettings,
    *,
    server: str | None,
    hidden: bool = False,
) -> AsyncIterator[list[Report]]:
    """Run or continue variants, and yield their reports, the baseline first.

    Args:
        options: The command's options.
        specs: Specs from `variant_specs`, one per variant.
        settings: Settings of the comparison.
        server: Address of an orchestrator; None for the local stack.
        hidden: Whether to hide the progress.

    Raises:
        InvalidInputError: The dataset or an agent's code is wrong, or the runs cannot stop early; lists every problem.
        AssayError: A run did not finish; the message names the command to continue.
    """
    from assay.client.encoded_cases import EncodedCases
    from assay.client.input_checks import check_questions
    from assay.client.variants import (
        check_variants,
        drive_variants,
        new_group_id,
        plan_stopping,
        resume_variants,
        start_variants,
    )
    from assay.reports.document.prepared_rows import report_of_run

    async with AsyncExitStack() as stack:
        cases = stack.enter_context(EncodedCases(specs[0].recorded_verdicts))
        info = check_variants(specs, specs[0].open_dataset(), None if options.resume else cases.add)
        rule = options.stop_early
        stopping = plan_stopping(rule, specs, info, settings) if rule else None
        print_warnings(info)
        codes = user_codes(specs)
        for spec, code in zip(specs, codes, strict=True):
            check_questions(code.agent, info, spec.settings)
        judge_keys = specs[0].judge_keys if specs[0].needs_judge(info.checks) else None
        group_id = options.resume or new_group_id()
        client, local = await stack.enter_async_context(
            connect(server, specs[0].embedding_models(info.checks), judge_keys=judge_keys)
        )
        if options.resume:
            runs = await resume_variants(client, specs, group_id, rule)
        else:
            runs = await start_variants(client, specs, cases, info, group_id, stopping)
        with agent_stdout(), _with_continue_hint(group_id):
            runs = await drive_variants(client, runs, codes, stack=local, hidden=hidden)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="assay-compare-")))
        yield [
            await stack.enter_async_context(report_of_run(run, spec, client.list_rows(run.run_id), folder))
            for run, spec in zip(runs, specs, strict=True)
        ]


def user_codes(specs: Sequence[Spec]) -> list[UserCode]:
    """Load the code of each variant.

    Raises:
        InvalidInputError: Code cannot be loaded; lists every problem with its variants.
    """
    from assay.client.variants import name_of, problems_of_variants
    from assay_cli.agent_process import load_user_code

    codes: list[UserCode] = []
    variants_of: dict[Problem, list[str]] = {}
    first: InvalidInputError | None = None
    for spec in specs:
        try:
            codes.append(load_user_code(spec.settings, spec.base_dir))
        except InvalidInputError as error:
            first = first or error
            for problem in error.problems:
                variants_of.setdefault(problem, []).append(name_of(spec))
    if first is not None:
        # A single error is kept as it is, since it may hold the traceback of the user's code.
        first.problems = problems_of_variants(variants_of)
        first.message = "\n".join(map(str, first.problems))
        raise first
    return codes


@contextlib.contextmanager
def _with_continue_hint(group_id: str) -> Any:
    """Print the command that continues the runs if they are interrupted or stop."""
    import asyncio

    context = click.get_current_context(silent=True)
    command = repeated_command(context, without="resume") if context is not None else "assay compare"
    how = f"Continue with: {command} --resume {group_id}"
    try:
        yield
    except asyncio.CancelledError:
        click.echo(f"\ninterrupted: finished rows are stored. {how}", err=True)
        raise
    except AssayError as error:
        raise type(error)(f"{error.message}\n{how}", reason=error.reason) from error
