"""Matching of retrieved sources with expected ones, and the position of the first match.

Two names are equal if they are the same text after NFKC, with `_` as a space, whitespace runs as one space, stripped
and case-folded. If only one of them is an http(s) address, the percent-decoded last part of its path is compared. Two
addresses are equal if host (without `www.`), decoded path (without a final slash) and query are; scheme and fragment
are ignored. No other similarity counts.
"""

from __future__ import annotations

import itertools
import unicodedata
from collections import deque
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from assay.metrics.core.row_work import WORK_PER_CHARACTER
from assay.model.answers.agent_response import Source
from assay.text.equality import plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from assay.metrics.core.score import Row
    from assay.model.answers.agent_response import AgentResponse
    from assay.model.case import Case

_DEFAULT_PORTS = (None, 80, 443)
_LONGEST_REMEMBERED = 1000
_WORK_PER_NAME = 500
_MOST_FIELDS, _MOST_FIELD_CHARS = 50, 120
_NOT_READ = "which is not read as its name: write its title, uri or id"


@dataclass(frozen=True, slots=True)
class _Key:
    """The key that names are compared by; `address` is empty if the name is no address."""

    text: str
    address: str = ""


def usable_sources(case: Case) -> tuple[str, ...]:
    """Return the sources that the case's last turn expects, without blank names."""
    return tuple(name for name in case.turns[-1].expected_sources if names_something(name))


def first_match(expected: Sequence[str], retrieved: Sequence[Source], k: int | None = None) -> int | None:
    """Return the position of the first expected source among those retrieved, or None.

    Args:
        expected: Titles, identifiers or addresses.
        retrieved: In rank order; a source matches by its title, its address or its id.
        k: How many of them count; None for all.

    Returns:
        The position from 1, counting duplicates.
    """
    wanted = _Wanted(expected)
    for position, source in enumerate(retrieved[:k], 1):
        if any(wanted.has(_key(name)) for name in (source.title, source.uri, source.id) if name):
            return position
    return None


def unmatched(expected: Sequence[str], retrieved: Sequence[Source]) -> list[str]:
    """Return the expected sources that were not retrieved, in order."""
    named = _Wanted([name for source in retrieved for name in (source.title, source.uri, source.id) if name])
    return [name for name in expected if not named.has(_key(name))]


def ranked_sources(response: AgentResponse) -> tuple[Source, ...]:
    """Return the sources of an answer, or its retrieved items if it names no sources."""
    return response.sources or response.retrieved or ()


def missed(row: Row) -> str:
    """Return the stable word for why a row has no expected source."""
    if row.response.is_failed:
        return "agent_error"
    return "no_expected_source_found" if ranked_sources(row.response) else "nothing_retrieved"


def unread_names(expected: Sequence[str], response: AgentResponse, sources: Sequence[Source]) -> str:
    """Return why an answer may contain an expected source that was not recognised; empty if there is no sign of it.

    Its sources may lack names, or an expected name may be in a field that is not read as a name.

    Args:
        expected: Titles, identifiers or addresses, none of which is a name of the sources.
        response: The answer.
        sources: The counted sources of the answer.
    """
    if response.is_failed:
        return ""
    wanted = _Wanted(expected)
    for index, source in enumerate(sources[:_MOST_FIELDS]):
        if (field := _field_with(wanted, source.metadata)) is not None:
            return f"an expected source is in {field[:_MOST_FIELD_CHARS]!r} of source {index + 1}, {_NOT_READ}"
    held = {name: item for name, item in response.metadata.items() if isinstance(item, dict | list)}
    if not sources and (field := _field_with(wanted, held)) is not None:
        return f"an expected source is in {field[:_MOST_FIELD_CHARS]!r} of the answer: name the field 'sources'"
    nameless = [source for source in sources if not (source.title or source.uri or source.id)]
    if all(source == Source() for source in nameless):
        return ""
    fields = ", ".join(dict.fromkeys(name for source in nameless for name in _fields(source)))[:_MOST_FIELD_CHARS]
    return f"{len(nameless)} of {len(sources)} sources have no name (fields: {fields}), {_NOT_READ}"


def _fields(source: Source) -> Iterator[str]:
    yield from ("content",) if source.content else ()
    yield from ("score",) if source.score is not None else ()
    yield from source.metadata


def _field_with(wanted: _Wanted, data: Mapping[str, Any]) -> str | None:
    """Return the path of the first field with an expected name, among the first `_MOST_FIELDS`."""
    pending: deque[tuple[str, Any]] = deque(data.items())
    for _ in range(_MOST_FIELDS):
        if not pending:
            break
        path, value = pending.popleft()
        if isinstance(value, dict):
            pending += [(f"{path}.{name}", item) for name, item in itertools.islice(value.items(), _MOST_FIELDS)]
        elif isinstance(value, list):
            pending += [(f"{path}[{index}]", item) for index, item in enumerate(value[:_MOST_FIELDS])]
        elif isinstance(value, str) and len(value) <= _LONGEST_REMEMBERED and wanted.has(_key(value)):
            return path
    return None


def matching_work(row: Row) -> int:
    """Return an upper bound of the work of matching a row's sources; see `row_work`."""
    sources = ranked_sources(row.response)
    names = [name for source in sources for name in (source.title, source.uri, source.id) if name]
    names += row.case.turns[-1].expected_sources
    return _WORK_PER_NAME * len(names) + WORK_PER_CHARACTER * sum(map(len, names))


class _Wanted:
    """The expected sources by key, so that a lookup takes constant time."""

    def __init__(self, expected: Sequence[str]) -> None:
        keys = [_key(name) for name in expected]
        self._addresses = {key.address for key in keys if key.address}
        self._texts = {key.text for key in keys if key.text}
        self._texts_alone = {key.text for key in keys if key.text and not key.address}

    def has(self, key: _Key) -> bool:
        """Return whether a key matches an expected source: two addresses as addresses, anything else as texts."""
        if key.address:
            return key.address in self._addresses or key.text in self._texts_alone
        return key.text in self._texts


def names_something(name: str) -> bool:
    """Return whether a name is more than spacing."""
    key = _key(name)
    return bool(key.text or key.address)


def _key(name: str) -> _Key:
    return _remembered_key(name) if len(name) <= _LONGEST_REMEMBERED else _read_key(name)


@lru_cache(maxsize=4096)
def _remembered_key(name: str) -> _Key:
    return _read_key(name)


def _read_key(name: str) -> _Key:
    name = plain(name)
    if not name[:8].lower().startswith(("http://", "https://")):
        return _Key(_folded(name))
    try:
        parts = urlsplit(name)
        host, port = parts.hostname or "", parts.port
    except ValueError:  # not an address after all, such as http://[draft]
        return _Key(_folded(name))
    segments = [segment for segment in parts.path.split("/") if segment]
    path = unquote(parts.path).rstrip("/")
    place = host.removeprefix("www.") + ("" if port in _DEFAULT_PORTS else f":{port}")
    address = _folded(f"{place}{path}?{parts.query}" if parts.query else f"{place}{path}")
    return _Key(_folded(unquote(segments[-1])) if segments else "", address)


def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).replace("_", " ").split()).casefold()
