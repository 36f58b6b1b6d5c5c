"""Prompt templates: texts with {{variable}} where a case puts its own words.

A template is filled by plain substitution and nothing else: what stands between the braces is looked up as it is,
without attributes, filters or code, and what is put in is never read as a template again. A text is put in as it
is, `contexts` as passages with an empty line between them, any other value as JSON.

Besides the case's variables there are `input`, the question, and `contexts`, the passages given with the case,
unless a variable has that name. A text that needs {{…}} as such can be given by a variable.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from assay.parsing.names import unknown_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.model.case import Case

# The spaces are taken off afterwards: an expression that does so takes cubic time where the end is missing.
PLACEHOLDER = re.compile(r"\{\{([^{}]*)\}\}")
"""A place in a template that a value takes, with the value's name."""
MAX_FILLED_CHARS = 4 * 1024 * 1024
"""The most characters of a filled template."""


def variables_of(template: str) -> tuple[str, ...]:
    """Return the names of the variables that a template has, each once, in order."""
    return tuple(dict.fromkeys(found[1].strip() for found in PLACEHOLDER.finditer(template)))


def template_problem(template: str) -> str:
    """Return what is wrong with how a template is written; empty where nothing is."""
    if any(not name for name in variables_of(template)):
        return "has {{}} without a name: write {{input}}, or the name of a variable of the cases"
    rest = PLACEHOLDER.sub("", template)
    at = rest.find("{{")
    if at >= 0:
        return f"has {{{{ without }}}}, at {_shown(rest[at:])}: a variable is written {{{{name}}}}"
    return ""


def case_values(case: Case, turn_input: str) -> dict[str, Any]:
    """Return what a template can take from a case and the input of one of its turns."""
    values: dict[str, Any] = {}
    if turn_input.strip():
        values["input"] = turn_input
    if case.contexts:
        values["contexts"] = "\n\n".join(case.contexts)
    return values | case.variables


def missing_variables(templates: Sequence[str], values: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each variable of the templates that has no value."""
    names = dict.fromkeys(name for template in templates for name in variables_of(template))
    return [_missing(name, values) for name in names if name not in values]


def case_problems(templates: Sequence[str], case: Case) -> list[str]:
    """Return a sentence for each variable of the templates that some turn of a case has no value for, each once."""
    found = (missing_variables(templates, case_values(case, turn.input)) for turn in case.turns)
    return list(dict.fromkeys(sentence for sentences in found for sentence in sentences))


def fill(template: str, values: Mapping[str, Any]) -> str:
    """Return the template with its variables filled in; each must have a value.

    Raises:
        FilledTooLargeError: It would be larger than 4 MiB. Nothing that large is built to find that out.
    """
    texts = {name: as_text(values[name]) for name in variables_of(template)}
    used = (found[1].strip() for found in PLACEHOLDER.finditer(template))
    if len(template) + sum(len(texts[name]) for name in used) > MAX_FILLED_CHARS:
        raise FilledTooLargeError(
            f"the prompt is larger than {MAX_FILLED_CHARS // 1024**2} MiB once it is filled in: use fewer variables, "
            "or shorten the case"
        )
    return PLACEHOLDER.sub(lambda found: texts[found[1].strip()], template)


class FilledTooLargeError(ValueError):
    """A filled template would be too large; the message says what to do."""


def _missing(name: str, values: Mapping[str, Any]) -> str:
    if name in ("input", "contexts"):
        return f"the case has no {name}"
    return unknown_name("variable", name, values) if values else f"unknown variable {name!r}; the case has none"


def as_text(value: Any) -> str:
    """Return a value as a text holds it: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _shown(text: str) -> str:
    line = text.splitlines()[0]
    return repr(line if len(line) <= 40 else f"{line[:39]}…")
