"""Everything that the public signatures of `assay` mention can be imported from a public module."""

from __future__ import annotations

import importlib
import inspect
import re

import pytest
from tests.support.docs.guides import ROOT
from tests.support.docs.signatures import defining_place, signature_types

import assay
import assay.errors
import assay.types


def test_the_types_of_public_signatures_are_public() -> None:
    """`assay.types` has the types of all public signatures that `assay` itself lacks, and no others."""
    in_signatures = {
        id(getattr(importlib.import_module(module), name)): f"{module}.{name}, used by {'.'.join(referrer)}"
        for (module, name), referrer in signature_types().items()
    }
    in_types = {id(getattr(assay.types, name)): name for name in assay.types.__all__}
    in_package = {id(getattr(assay, name)) for name in assay.__all__}
    assert [text for key, text in in_signatures.items() if key not in in_types.keys() | in_package] == []
    assert [name for key, name in in_types.items() if key not in in_signatures or key in in_package] == []


@pytest.mark.parametrize(
    "place",
    [
        ("assay.client.api.runs", "Runs"),  # what a function returns
        ("assay.model.run", "RunState"),  # a method's argument
        ("assay.model.case", "Turn"),  # a field of a type in an argument
        ("assay.scoring.vectors", "EmbedFunction"),  # an alias
    ],
)
def test_signatures_are_followed(place: tuple[str, str]) -> None:
    """The search for types finds them behind each kind of annotation."""
    assert place in signature_types()


def test_the_place_of_a_name_is_its_definition() -> None:
    """A name that several modules import has the place of its definition; names of other packages have none."""
    assert defining_place("assay.client.client", "RunSpec") == ("assay.model.run_spec", "RunSpec")
    assert defining_place("assay.client.client", "asyncio") is None


def test_every_error_is_listed() -> None:
    """`assay.errors` lists all its classes, and its docstring draws all errors."""
    classes = {name for name, value in vars(assay.errors).items() if inspect.isclass(value) and name.endswith("Error")}
    assert classes == {name for name in assay.errors.__all__ if name.endswith("Error")}
    assert classes == set(re.findall(r"\w+Error", assay.errors.__doc__ or ""))


def test_the_guide_lists_the_methods_of_the_client() -> None:
    """The table in docs/python.md has every public method of `assay.Client`, and no other."""
    text = (ROOT / "docs/python.md").read_text(encoding="utf-8")
    table = text.partition("## The client")[2].partition("\n## ")[0]
    listed = {
        name for line in re.findall(r"^\| (.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", line)
    }
    assert listed == {name for name, _ in inspect.getmembers(assay.Client, inspect.isfunction) if name[0] != "_"}
