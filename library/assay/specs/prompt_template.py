"""Prompt templates: texts with {{variable}} placeholders that a case fills.

Filling is plain substitution: the name between the braces is looked up literally, without attributes, filters or code,
    and inserted text is never parsed again. A text is inserted unchanged, `contexts` as passages separated by an empty
    line, any other value as JSON.

Besides the case's variables there are `input`, the question, and `contexts`, the passages given with the case, unless a
variable has that name. To get a literal {{…}}, put it into a variable.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from assay.parsing.names import unknown_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.model.case import Case

# Spaces are stripped afterwards: an expression that strips them takes cubic time if the end is missing.
PLACEHOLDER = re.compile(r"\{\{([^{}]*)\}\}")
"""A placeholder, with the name of its value."""
MAX_FILLED_CHARS = 4 * 1024 * 1024
"""Maximum characters of a filled template."""


def variables_of(template: str) -> tuple[str, ...]:
    """Return the names of a template's variables in order, without repeats."""
    return tuple(dict.fromkeys(match[1].strip() for match in PLACEHOLDER.finditer(template)))


def template_problem(template: str) -> str:
    """Return the syntax problem of a template; empty if there is none."""
    if any(not name for name in variables_of(template)):
        return "has {{}} without a name: write {{input}}, or the name of a variable of the cases"
    rest = PLACEHOLDER.sub("", template)
    at = rest.find("{{")
    if at >= 0:
        return f"has {{{{ without }}}}, at {_shown(rest[at:])}: a variable is written {{{{name}}}}"
    return ""


def case_values(case: Case, turn_input: str) -> dict[str, Any]:
    """Return the values that a case and the input of a turn provide."""
    values: dict[str, Any] = {}
    if turn_input.strip():
        values["input"] = turn_input
    if case.contexts:
        values["contexts"] = "\n\n".join(case.contexts)
    return values | case.variables


def missing_variables(templates: Sequence[str], values: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each variable of the templates without a value."""
    names = dict.fromkeys(name for template in templates for name in variables_of(template))
    return [_missing(name, values) for name in names if name not in values]


def case_problems(templates: Sequence[str], case: Case) -> list[str]:
    """Return a sentence for each variable of the templates that lacks a value in some turn, without repeats."""
    by_turn = (missing_variables(templates, case_values(case, turn.input)) for turn in case.turns)
    return list(dict.fromkeys(sentence for sentences in by_turn for sentence in sentences))


def fill(template: str, values: Mapping[str, Any]) -> str:
    """Return the template with its variables filled; each must have a value.

    Raises:
        FilledTooLargeError: The result would exceed 4 MiB. The check needs no result of that size.
    """
    texts = {name: as_text(values[name]) for name in variables_of(template)}
    used = (match[1].strip() for match in PLACEHOLDER.finditer(template))
    if len(template) + sum(len(texts[name]) for name in used) > MAX_FILLED_CHARS:
        raise FilledTooLargeError(
            f"the prompt is larger than {MAX_FILLED_CHARS // 1024**2} MiB once it is filled in: use fewer variables, "
            "or shorten the case"
        )
    return PLACEHOLDER.sub(lambda match: texts[match[1].strip()], template)


class FilledTooLargeError(ValueError):
    """A filled template would be too large; the message contains a remedy."""


def _missing(name: str, values: Mapping[str, Any]) -> str:
    if name in ("input", "contexts"):
        return f"the case has no {name}"
    return unknown_name("variable", name, values) if values else f"unknown variable {name!r}; the case has none"


def as_text(value: Any) -> str:
    """Return a value for insertion: a text unchanged, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _shown(text: str) -> str:
    line = text.splitlines()[0]
    return repr(line if len(line) <= 40 else f"{line[:39]}…")
