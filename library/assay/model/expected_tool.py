"""Expected tool calls, as users write them in a dataset or in the parameters of a metric."""

from __future__ import annotations

from collections.abc import Mapping

from assay.model.answers.response_fields import shown
from assay.model.answers.response_names import CALL_FIELDS, call_parts
from assay.model.case import TOOL_MATCHES, ExpectedTool
from assay.parsing.names import unknown_name

_FIELDS = ("name", "arguments", "match")


def read_expected_tool(item: object) -> tuple[ExpectedTool | None, list[tuple[str, str]]]:
    """Return the tool call that an item describes.

    Args:
        item: A name, or a mapping with `name`, `arguments`, which may be JSON text, and `match`, by default "subset"
            with arguments and "name" without. Other tools' field names are accepted, as in answers.

    Returns:
        The call, or None if it cannot be read; and problems as pairs: the field, as the end of a path, and the message.
    """
    if isinstance(item, str) and item.strip():
        return ExpectedTool(item.strip()), []
    if not isinstance(item, Mapping):
        return None, [("", f"must be a tool's name, or an object with name and arguments, not {shown(item)}")]
    known = CALL_FIELDS.union(_FIELDS)
    problems = [
        (f".{key}", unknown_name("field of a tool call", str(key), _FIELDS)) for key in item if key not in known
    ]
    call = call_parts(item)
    name, arguments = call.name, call.arguments
    if not isinstance(name, str) or not name.strip():
        return None, [*problems, (".name", f"must be a tool's name, not {shown(item.get('name', name))}")]
    if arguments is not None and not isinstance(arguments, dict):
        return None, [*problems, (f".{call.arguments_key}", f"must be an object, not {shown(arguments)}")]
    match = item.get("match", "name" if arguments is None else "subset")
    if match not in TOOL_MATCHES:
        return None, [*problems, (".match", f"must be one of {', '.join(TOOL_MATCHES)}, not {shown(match)}")]
    return ExpectedTool(name.strip(), arguments, match), problems
