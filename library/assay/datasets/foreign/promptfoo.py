"""promptfoo: config files, lists of tests, and tables of tests."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from assay.datasets.fields.aliases import ALIASES, is_blank, names_of
from assay.datasets.fields.field_names import folded
from assay.datasets.foreign.promptfoo_checks import (
    check_of_cell,
    is_code,
    is_json_check,
    number,
    refuse_code,
    render,
    schema_in,
)
from assay.datasets.records import BadFileError, BadRecordError, shown
from assay.parsing.names import nearest

FIELDS = {
    "input": "one of vars | a column",
    "variables": "vars | columns",
    "assertions": "assert | __expected",
    "references": "assert | __expected",
    "thresholds": "threshold | __threshold",
    "recorded": "providerOutput | __providerOutput",
    "metadata": "description, metadata | __description, __metadata",
}
"""The sources of each canonical field in a test, and in a table row."""

_PLAIN_FIELDS = frozenset({"expected", "expected_output", "reference", "references", "question", "input"})
_TEST_FIELDS = frozenset({"vars", "assert", "description", "metadata", "options", "threshold", "provideroutput"})
_CHECK_FIELDS = ("type", "value", "threshold", "metric", "weight")
_UNUSED_CHECK_FIELDS = ("provider", "$ref")
_CODE_OPTIONS = ("transform", "transformVars", "postprocess")
_READ_PARTS = ("tests", "defaultTest", "assertionTemplates", "description", "$schema")
_COLUMNS = ("__expected", "__prefix", "__suffix", "__description", "__metric", "__threshold", "__providerOutput")
_EXPECTED = re.compile(r"__expected(\d*)")
_CONFIG = re.compile(r"__config:(__expected\d*):(\w+)")
_METADATA = "__metadata:"
_TEMPLATE_REF = "#/assertionTemplates/"


def matches(record: Mapping[str, Any], keys: frozenset[str]) -> bool:
    """Return whether a record is a promptfoo test.

    Args:
        record: The record by snake-case names.
        keys: Its field names.
    """
    if any(key.startswith(("__expected", "__metadata:", "__config:")) for key in keys) or keys & _SPECIAL:
        return True
    if isinstance(record.get("assert"), list):
        return True
    # Prompt templates with `vars` and an expected answer are plain records.
    return isinstance(record.get("vars"), Mapping) and not keys & _PLAIN_FIELDS


_OWN = frozenset(alias for name, aliases in ALIASES.items() if name != "input" for alias in aliases)
_SPECIAL = frozenset(folded(name) for name in _COLUMNS)


def convert(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plain record of an independent test.

    Raises:
        BadRecordError: The test holds code, or cannot be read.
    """
    return Tests({}).convert(record)


def unread_parts(top: Mapping[str, Any]) -> str:
    """Return the warning about a config file's other contents; empty if it has none.

    Raises:
        BadFileError: They include tests that would be omitted.
    """
    if top.get("scenarios"):
        raise BadFileError("holds `scenarios`, which are not read: write their tests out under `tests`")
    unread = [name for name in top if name not in _READ_PARTS]
    if not unread:
        return ""
    return (
        f"ignores {', '.join(f'`{name}`' for name in unread)} of a promptfoo config: only its tests are imported, and "
        "the spec names the agent"
    )


class Tests:
    """The tests of a file.

    Args:
        top: The data beside the tests in a config file.
        user_map: The user's own mapping, from canonical names to variables.
        are_rows: Whether the tests are table rows; None to decide by their fields.

    Raises:
        BadFileError: The data beside the tests cannot be read.
    """

    def __init__(
        self, top: Mapping[str, Any], *, field_map: Mapping[str, str] | None = None, are_rows: bool | None = None
    ) -> None:
        default = top.get("defaultTest") or {}
        if not isinstance(default, Mapping):
            raise BadFileError(f"holds a defaultTest that is {shown(default)}: write the test itself there")
        self._default = default
        self._templates = top.get("assertionTemplates") or {}
        self._field_map = field_map or {}
        self._are_rows = are_rows

    def convert(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Return the plain record of a test.

        Raises:
            BadRecordError: The test holds code, or cannot be read.
        """
        is_row = self._are_rows
        if is_row is None:
            is_row = not any(folded(key) in _TEST_FIELDS for key in record) or "__expected" in record
        test = _test_of_row(record) if is_row else dict(record)
        merged = self._merged(test)
        variables = _variables(merged)
        plain: dict[str, Any] = {}
        name = self._name_of_input(variables)
        text = variables.get(name) if name else None
        if isinstance(text, str | int | float) and not isinstance(text, bool):
            plain["input"] = _wrapped(str(text), merged)
        elif merged["options"].get("prefix") or merged["options"].get("suffix"):
            raise BadRecordError("stands before or after a question, and no variable is one", "options.prefix")
        plain["variables"] = variables
        checks = self._checks(test, variables)
        plain["assertions"] = checks
        if references := [str(check["value"]) for check in checks if _is_reference(check)]:
            plain["references"] = references
        if merged.get("threshold") is not None:
            plain["thresholds"] = {"assertions": number(merged["threshold"], "threshold")}
        output = test.get("providerOutput")
        if not is_blank(output):
            plain["recorded"] = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
        plain["metadata"] = _metadata(merged, plain)
        for canonical, source in self._field_map.items():
            if canonical == "input":
                continue
            if variable := _same_name(source, variables):
                plain[canonical] = variables[variable]
            elif variable := _same_name(source, plain["metadata"]):
                plain[canonical] = plain["metadata"].pop(variable)
        return plain

    def _merged(self, test: Mapping[str, Any]) -> dict[str, Any]:
        """Return the test merged with the default test; its own values take precedence."""
        merged = {**self._default, **{key: value for key, value in test.items() if value is not None}}
        for name in ("vars", "options", "metadata"):
            parts = (self._default.get(name) or {}, test.get(name) or {})
            for part in parts:
                if not isinstance(part, Mapping):
                    raise BadRecordError(f"must be an object, not {shown(part)}: write the values here", name)
            merged[name] = {**parts[0], **parts[1]}
        for name in _CODE_OPTIONS:
            if merged["options"].get(name):
                raise BadRecordError(
                    "is code, which is not run: let the agent give the final answer", f"options.{name}"
                )
        return merged

    def _name_of_input(self, variables: Mapping[str, Any]) -> str:
        if source := self._field_map.get("input"):
            variable = _same_name(source, variables)
            if not variable:
                listed = ", ".join(map(shown, variables)) or "none"
                raise BadRecordError(f"has no variable {shown(source)}, the question; it has {listed}", "vars")
            return variable
        if len(variables) == 1:
            return next(iter(variables))
        named = [name for name in variables if folded(name) in names_of("input")]
        return named[0] if len(named) == 1 else ""

    def _checks(self, test: Mapping[str, Any], variables: Mapping[str, Any]) -> list[dict[str, Any]]:
        checks: list[tuple[str, Any]] = []
        options = test.get("options")
        if not (isinstance(options, Mapping) and options.get("disableDefaultAsserts")):
            checks += _listed(self._default.get("assert"), "defaultTest.assert")
        checks += [(name, check) for name, check in test.get(_ROW_CHECKS, ())]
        checks += _listed(test.get("assert"), "assert")
        return [self._check(check, field, variables) for field, check in checks]

    def _check(self, check: Any, field: str, variables: Mapping[str, Any]) -> dict[str, Any]:
        if not isinstance(check, Mapping):
            raise BadRecordError(f"must be a check with type and value, not {shown(check)}", field)
        check = self._filled(check, field)
        if is_code(check):
            return _plain_check(check)
        refuse_code(check, field)
        if "assert" in check:
            raise BadRecordError("is a set of checks, which is not read: list them by themselves", field)
        for name in check:
            if name not in _CHECK_FIELDS + _UNUSED_CHECK_FIELDS:
                close = nearest(name, _CHECK_FIELDS)
                hint = f"did you mean {close!r}?" if close else f"read are {', '.join(_CHECK_FIELDS)}"
                raise BadRecordError(f"is not a supported field of a check; {hint}", f"{field}.{name}")
        plain = _plain_check(check)
        if "value" in plain:
            plain["value"] = render(plain["value"], variables, f"{field}.value")
            if is_json_check(plain.get("type")) and isinstance(plain["value"], str):
                plain["value"] = schema_in(plain["value"])
        return plain

    def _filled(self, check: Mapping[str, Any], field: str) -> Mapping[str, Any]:
        """Return the check merged with its template; its own values take precedence."""
        ref = check.get("$ref")
        if ref is None:
            return check
        name = str(ref).removeprefix(_TEMPLATE_REF)
        template = self._templates.get(name) if isinstance(self._templates, Mapping) else None
        if not isinstance(template, Mapping):
            raise BadRecordError(f"names the template {shown(ref)}, which the file does not have", f"{field}.$ref")
        return {**template, **check}


_ROW_CHECKS = "\0checks"  # no column's name


def _same_name(name: str, names: Iterable[str]) -> str:
    return next((known for known in names if folded(known) == folded(name)), "") if name else ""


def _listed(value: Any, field: str) -> list[tuple[str, Any]]:
    if is_blank(value):
        return []
    if not isinstance(value, list):
        raise BadRecordError(f"must be a list of checks, not {shown(value)}", field)
    return [(f"{field}[{index}]", item) for index, item in enumerate(value)]


def _is_reference(check: Mapping[str, Any]) -> bool:
    value = check.get("value")
    return check.get("type") == "equals" and isinstance(value, str | int | float) and not isinstance(value, bool)


def _wrapped(text: str, test: Mapping[str, Any]) -> str:
    options = test["options"]
    return f"{options.get('prefix') or ''}{text}{options.get('suffix') or ''}"


def _variables(test: Mapping[str, Any]) -> dict[str, Any]:
    raw: Mapping[str, Any] = test["vars"]
    variables: dict[str, Any] = {}
    for name, value in raw.items():
        field = f"vars.{name}"
        if isinstance(value, str) and value.startswith(("file://", "package:")):
            raise BadRecordError(f"{shown(value)} names a file, which is not read: write its contents here", field)
        if isinstance(value, list) and not test["options"].get("disableVarExpansion"):
            raise BadRecordError(
                "is a list, which means one test per item: write these tests out, or keep the list as one value "
                "with `options: {disableVarExpansion: true}`",
                field,
            )
        variables[name] = value
    for name, value in variables.items():
        if isinstance(value, str) and "{{" in value:
            others = {other: text for other, text in raw.items() if other != name}
            variables[name] = render(value, others, f"vars.{name}")
    return variables


def _metadata(test: Mapping[str, Any], plain: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a test that Assay does not use; those with names of its own go to the plain record."""
    metadata = dict(test["metadata"])
    read = {"vars", "assert", "threshold", "metadata", "options", "providerOutput", _ROW_CHECKS}
    for name, value in test.items():
        if name in read or is_blank(value):
            continue
        if folded(name) in _OWN or folded(name).startswith(("expected", "reference", "ground_truth")):
            plain.setdefault(name, value)
        else:
            metadata.setdefault(name, value)
    options = {name: value for name, value in test["options"].items() if name not in ("prefix", "suffix")}
    if options:
        metadata.setdefault("options", options)
    return metadata


def _test_of_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the test of a table row: special columns begin with __, all others are variables."""
    test: dict[str, Any] = {"vars": {}, "options": {}, "metadata": {}}
    checks: dict[str, dict[str, Any]] = {}
    thresholds: dict[str, float] = {}
    for name, cell in row.items():
        if not name.startswith("__"):
            test["vars"][name] = cell
        elif is_blank(cell):
            pass
        elif _EXPECTED.fullmatch(name):
            checks[name] = check_of_cell(str(cell), name)
        elif config := _CONFIG.fullmatch(name):
            if config[2] != "threshold":
                raise BadRecordError(f"sets {config[2]!r}, and only a threshold can be set", name)
            thresholds[config[1]] = number(cell, name)
        else:
            _take_column(test, name, cell)
    for name, threshold in thresholds.items():
        target = next((known for known in (name, name.removesuffix("1"), f"{name}1") if known in checks), None)
        if target is not None:
            checks[target]["threshold"] = threshold
    metric = test.pop("metric", None)
    ordered = sorted(checks, key=lambda name: int(name.removeprefix("__expected") or 0))
    test[_ROW_CHECKS] = [
        (name, checks[name] if metric is None else {**checks[name], "metric": metric}) for name in ordered
    ]
    return test


def _plain_check(check: Mapping[str, Any]) -> dict[str, Any]:
    """Return a check with Assay's names: promptfoo calls its group "metric"."""
    plain = {name: check[name] for name in _CHECK_FIELDS if check.get(name) is not None}
    return {"group" if name == "metric" else name: value for name, value in plain.items()}


def _take_column(test: dict[str, Any], name: str, cell: Any) -> None:
    if name.startswith(_METADATA):
        key = name.removeprefix(_METADATA)
        is_list = key.endswith("[]")
        test["metadata"][key.removesuffix("[]")] = _split(str(cell)) if is_list else cell
    elif name in ("__prefix", "__suffix"):
        test["options"][name.removeprefix("__")] = str(cell)
    elif name == "__threshold":
        test["threshold"] = number(cell, name)
    elif name in ("__description", "__metric", "__providerOutput"):
        test[name.removeprefix("__")] = cell
    elif close := nearest(name, _COLUMNS):
        raise BadRecordError(f"is not a promptfoo column; did you mean {close!r}?", name)
    else:
        test["metadata"][name] = cell


def _split(cell: str) -> list[str]:
    """Return the items of a cell, split at commas not preceded by a backslash."""
    return [item.replace("\\,", ",").strip() for item in re.split(r"(?<!\\),", cell) if item.strip()]
