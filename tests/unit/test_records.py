"""`assay.records.dataclass` makes what the standard library makes."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import field
from typing import Any, ClassVar, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay import records


@records.dataclass(frozen=True, slots=True)
class Own:
    """A record."""

    first: Any
    second: Any = 2
    third: list[Any] = field(default_factory=list)
    hidden: str = field(default="h", repr=False)

    @property
    def both(self) -> tuple[Any, Any]:
        """Two fields."""
        return self.first, self.second


@dataclasses.dataclass(frozen=True, slots=True)
class Standard:
    """A record."""

    first: Any
    second: Any = 2
    third: list[Any] = field(default_factory=list)
    hidden: str = field(default="h", repr=False)


VALUES = st.none() | st.integers(-2, 2) | st.floats() | st.text(max_size=2)


@given(st.lists(VALUES, min_size=1, max_size=2), st.lists(VALUES, min_size=1, max_size=2))
def test_values_compare_hash_and_show_as_those_of_the_standard_library(one: list[Any], other: list[Any]) -> None:
    """Equality, hash, text, fields, copies and pickles of a class with and without defaults are the same."""
    own, standard = [Own(*one), Own(*other)], [Standard(*one), Standard(*other)]
    assert (own[0] == own[1]) is (standard[0] == standard[1])
    assert [repr(each) for each in own] == [repr(each).replace("Standard", "Own") for each in standard]
    assert dataclasses.asdict(own[0]).keys() == dataclasses.asdict(standard[0]).keys()
    assert hash(Hashable(own[0].first)) == hash(Hashable(own[0].first))
    for again in (copy.copy(own[0]), pickle.loads(pickle.dumps(own[0])), dataclasses.replace(own[0])):
        assert repr(again) == repr(own[0])
        assert type(again) is Own
    assert own[0].third is not own[1].third
    assert (own[0] == cast("object", standard[0])) is False


@records.dataclass(frozen=True, slots=True)
class Hashable:
    only: Any


def test_it_is_frozen_has_slots_and_the_usual_signature() -> None:
    """Fields cannot be assigned or deleted, others cannot be added; a wrong call is a TypeError."""
    own = Own(1)
    changes: list[Callable[[], None]] = [
        lambda: setattr(own, "first", 2),
        lambda: delattr(own, "first"),
        lambda: setattr(own, "new", 2),
    ]
    for change in changes:
        with pytest.raises(dataclasses.FrozenInstanceError):
            change()
    assert not hasattr(own, "__dict__")
    assert [*inspect.signature(Own).parameters] == [*inspect.signature(Standard).parameters]
    assert Own.__match_args__ == Standard.__match_args__
    assert own.both == (1, 2)
    assert len({Hashable(1), Hashable(1)}) == 1
    with pytest.raises(TypeError, match="unexpected keyword argument 'wrong'"):
        Own(1, wrong=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'first'"):
        Own()  # type: ignore[call-arg]


def test_what_is_not_plain_is_left_to_the_standard_library() -> None:
    """Class variables, own methods, bases and other options work as ever, and may be mixed."""

    @records.dataclass(frozen=True, slots=True)
    class Special:
        kind: ClassVar[str] = "k"
        value: int = 1

        def __post_init__(self) -> None:
            object.__setattr__(self, "value", self.value + 1)

    @dataclasses.dataclass(frozen=True)
    class Below(Own):
        fourth: int = 4

    @records.dataclass
    class Open:
        value: int = 1

    changed = Open()
    changed.value = 2
    assert (Special(1).value, Special.kind, changed) == (2, "k", Open(2))
    assert repr(Below(1)).endswith("Below(first=1, second=2, third=[], fourth=4)")
