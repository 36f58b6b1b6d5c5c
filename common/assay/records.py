"""`dataclass`: that of the standard library, made in a third of the time where it is frozen and has slots.

The standard library compiles six functions for each such class. A start makes some 160 classes: a quarter of its time
was theirs. Here one function is compiled, `__init__`; the others are the same for all classes. What has options,
bases or methods beyond that is left to the standard library, and everything of `dataclasses` works with both.
"""

from __future__ import annotations

import dataclasses
import inspect
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass
else:

    def dataclass(cls=None, /, **options):
        """Return the class as a dataclass; the options are those of `dataclasses.dataclass`."""
        if cls is None:
            return lambda decorated: dataclass(decorated, **options)
        if options == {"frozen": True, "slots": True} and _is_plain(cls):
            return _frozen(cls)
        return dataclasses.dataclass(cls, **options)


__all__ = ["dataclass"]

_OWN = frozenset(
    {"__init__", "__post_init__", "__eq__", "__hash__", "__setattr__", "__delattr__", "__getstate__", "__setstate__"}
)
_SPECIAL = ("ClassVar", "InitVar", "KW_ONLY")


def _is_plain(cls: type) -> bool:
    """Return whether a class has fields with or without defaults, and nothing else that shapes its methods."""
    if len(cls.__mro__) != 2 or not _OWN.isdisjoint(cls.__dict__):
        return False
    kinds = inspect.get_annotations(cls).values()
    if not all(isinstance(kind, str) and not any(name in kind for name in _SPECIAL) for kind in kinds):
        return False
    given = [value for value in cls.__dict__.values() if isinstance(value, dataclasses.Field)]
    return all(each.init and each.compare and each.hash is None and each.kw_only is not True for each in given)


def _frozen(cls: type) -> type:
    cls.__doc__ = cls.__doc__ or cls.__name__  # else the standard library would write the signature there
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True)(cls)
    params = made.__dataclass_params__
    params.init = params.repr = params.eq = params.frozen = True
    fields = dataclasses.fields(made)
    names = tuple(field.name for field in fields)
    get = _getter(names)
    methods = [_init(made, fields), *_comparisons(get), *_frozen_methods(made, names), *_state(names, get)]
    if "__repr__" not in made.__dict__:
        methods.append(_repr(tuple(field.name for field in fields if field.repr)))
    for method in methods:
        method.__qualname__ = f"{made.__qualname__}.{method.__name__}"
        setattr(made, method.__name__, method)
    return made  # type: ignore[no-any-return]  # the decorator returns what it was given


def _getter(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that returns the fields of an object as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda own: tuple(getattr(own, name) for name in names)


def _init(made: Any, fields: tuple[dataclasses.Field[Any], ...]) -> Callable[..., None]:
    """Return `__init__`: it sets slots by their descriptors, as `__setattr__` refuses to."""
    space: dict[str, Any] = {"_made": dataclasses.MISSING}
    parameters, body = ["self"], []
    for field in fields:
        name, value = field.name, field.name
        space[f"_set_{name}"] = made.__dict__[name].__set__
        if field.default is not dataclasses.MISSING:
            space[f"_default_{name}"] = field.default
            parameters.append(f"{name}=_default_{name}")
        elif field.default_factory is not dataclasses.MISSING:
            space[f"_factory_{name}"] = field.default_factory
            parameters.append(f"{name}=_made")
            value = f"_factory_{name}() if {name} is _made else {name}"
        else:
            parameters.append(name)
        body.append(f" _set_{name}(self, {value})")
    source = f"def __init__({', '.join(parameters)}):\n" + "\n".join(body or [" pass"])
    exec(source, space)  # noqa: S102 - names of fields alone, as the standard library does it
    init: Callable[..., None] = space["__init__"]
    init.__annotations__ = {**{field.name: field.type for field in fields}, "return": None}
    return init


def _comparisons(get: Callable[[Any], tuple[Any, ...]]) -> tuple[Callable[..., Any], ...]:
    def __eq__(self: Any, other: object) -> Any:  # noqa: N807
        return get(self) == get(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: Any) -> int:  # noqa: N807
        return hash(get(self))

    return __eq__, __hash__


def _frozen_methods(made: Any, names: tuple[str, ...]) -> tuple[Callable[..., Any], ...]:
    def __setattr__(self: Any, name: str, value: object) -> None:  # noqa: N807
        if type(self) is made or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(made, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:  # noqa: N807
        if type(self) is made or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(made, self).__delattr__(name)

    return __setattr__, __delattr__


def _state(names: tuple[str, ...], get: Callable[[Any], tuple[Any, ...]]) -> tuple[Callable[..., Any], ...]:
    def __getstate__(self: Any) -> list[Any]:  # noqa: N807
        return [*get(self)]

    def __setstate__(self: Any, state: list[Any]) -> None:  # noqa: N807
        for name, value in zip(names, state, strict=True):
            object.__setattr__(self, name, value)

    return __getstate__, __setstate__


def _repr(names: tuple[str, ...]) -> Callable[[Any], str]:
    @recursive_repr()
    def __repr__(self: Any) -> str:  # noqa: N807
        return f"{self.__class__.__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return __repr__
