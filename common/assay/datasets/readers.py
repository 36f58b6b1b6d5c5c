"""One reader per container: JSON Lines, JSON, CSV and TSV, YAML; each streams."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any, BinaryIO

from assay.datasets.records import MAX_RECORD_BYTES, BadFileError, Record, check_depth, parse_json_record

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["CONTAINER_KEYS", "read_csv", "read_json", "read_jsonl", "read_yaml", "sniff_json"]

CONTAINER_KEYS = ("eval_cases", "examples", "tests", "cases", "data", "test_cases")
"""Keys under which a JSON or YAML object may hold the list of cases."""

_TOO_LARGE = f"is larger than {MAX_RECORD_BYTES // 1024 // 1024} MiB"


def sniff_json(stream: io.BufferedReader[Any]) -> str:
    """Return "jsonl", "array" or "object" by the beginning of a JSON text."""
    head = stream.peek(65536)[:65536].lstrip()
    if head.startswith(b"["):
        return "array"
    first, newline, rest = head.partition(b"\n")
    if newline and rest.lstrip().startswith(b"{"):
        record = parse_json_record(first, 1, 1)
        if not record.problem:
            return "jsonl"
    return "object"


def read_jsonl(stream: BinaryIO) -> Iterator[Record]:
    """Yield one record per line; blank lines are passed over."""
    number = line = 0
    while text := stream.readline(MAX_RECORD_BYTES + 1):
        line += 1
        if len(text) > MAX_RECORD_BYTES and not text.endswith(b"\n"):
            number += 1
            yield Record(number, line, None, _TOO_LARGE)
            while (rest := stream.readline(MAX_RECORD_BYTES)) and not rest.endswith(b"\n"):
                pass
            continue
        if text.isspace():
            continue
        number += 1
        yield parse_json_record(text, number, line)


def read_json(stream: BinaryIO, kind: str) -> Iterator[Record]:
    """Yield the elements of an array, or of the list that an object holds under a known key.

    Args:
        stream: UTF-8 bytes.
        kind: "array" or "object", as `sniff_json` says.
    """
    import ijson  # imported here: only JSON files that are not line by line need it

    source = _LineCounter(stream)
    prefix = "item"
    if kind == "object":
        key = _container_key(source, ijson)
        source = _LineCounter(_rewound(stream))
        prefix = f"{key}.item"
    number = 0
    try:
        for item in ijson.items(source, prefix, use_float=True, buf_size=16384):
            number += 1
            yield Record(number, None, item, check_depth(item))
    except (ijson.JSONError, UnicodeDecodeError) as error:
        first_line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BadFileError(f"is not valid JSON after record {number}: {first_line}", source.line) from None


def _container_key(source: _LineCounter, ijson: Any) -> str:
    """Return the key under which an object holds its list of cases."""
    keys: list[str] = []
    try:
        depth = 0
        key = ""
        for event, value in ijson.basic_parse(source, use_float=True, buf_size=16384):
            if event in ("start_map", "start_array"):
                if depth == 1 and event == "start_array" and key in CONTAINER_KEYS:
                    return key
                depth += 1
            elif event in ("end_map", "end_array"):
                depth -= 1
            elif event == "map_key" and depth == 1:
                key = value
                keys.append(key)
            if depth == 0 and event not in ("start_map", "end_map"):
                break
    except (ijson.JSONError, UnicodeDecodeError) as error:
        first_line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BadFileError(f"is not valid JSON: {first_line}", source.line) from None
    shown = ", ".join(keys[:10]) or "nothing"
    raise BadFileError(f"holds {shown}, but no list of cases under {', '.join(CONTAINER_KEYS)}")


def _rewound(stream: BinaryIO) -> BinaryIO:
    if not stream.seekable():
        raise BadFileError("cannot be read twice: save it as plain UTF-8 JSON, or as JSON Lines")
    stream.seek(0)
    if stream.read(3) != b"\xef\xbb\xbf":
        stream.seek(0)
    return stream


class _LineCounter:
    """Counts the lines that a parser has read, for its error messages."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.line = 1

    def read(self, size: int = -1) -> bytes:
        chunk = self._stream.read(size)
        self.line += chunk.count(b"\n")
        return chunk


def read_csv(stream: BinaryIO, *, tab: bool) -> Iterator[Record]:
    """Yield one record per row, by the names in the first row; multi-line cells count as one record."""
    csv.field_size_limit(MAX_RECORD_BYTES)
    text = io.TextIOWrapper(stream, encoding="utf-8", errors="strict", newline="")
    delimiter = "\t" if tab else _delimiter(stream)
    rows = csv.reader(text, delimiter=delimiter, strict=True)
    number = 0
    try:
        header = next(rows, None)
        if header is None:
            return
        names = [name.strip() for name in header]
        _check_header(names)
        while True:
            line = rows.line_num + 1
            row = next(rows, None)
            if row is None:
                return
            if not any(cell.strip() for cell in row):
                continue
            number += 1
            if len(row) != len(names):
                yield Record(number, line, None, f"has {len(row)} cells where the first row names {len(names)}")
            else:
                yield Record(number, line, {name: cell for name, cell in zip(names, row, strict=True) if cell != ""})
    except csv.Error as error:
        raise BadFileError(f"is not valid CSV: {error}", rows.line_num) from None
    except UnicodeDecodeError as error:
        raise BadFileError(
            f"is not UTF-8 (byte 0x{error.object[error.start]:02x}): save it as UTF-8, or set `encoding`, e.g. cp1256",
            rows.line_num + 1,
        ) from None
    finally:
        text.detach()


def _check_header(names: list[str]) -> None:
    if any(name.startswith("__") for name in names):
        raise BadFileError("looks like a promptfoo CSV, which this version does not read: export plain columns", 1)
    if "" in names or len(set(names)) != len(names):
        raise BadFileError("needs a different name for every column in its first row", 1)


def _delimiter(stream: BinaryIO) -> str:
    head = stream.peek(65536)[:65536] if isinstance(stream, io.BufferedReader) else b""
    first = head.decode("utf-8", "replace").splitlines()[:1]
    counts = {mark: first[0].count(mark) if first else 0 for mark in ",;\t|"}
    best = max(counts, key=lambda mark: counts[mark])
    return best if counts[best] else ","


def read_yaml(stream: BinaryIO) -> Iterator[Record]:
    """Yield the items of a top-level list one by one, or of the list that a mapping holds under a known key."""
    from assay.yaml_nodes import YamlSyntaxError, construct, iterate_items

    try:
        number = 0
        for root in iterate_items(stream):
            for node in _items(root):
                number += 1
                found: list[tuple[str, YamlSyntaxError]] = []
                data = construct(node, problems=found)
                problem = "; ".join(f"{path}: {error.message}" if path else error.message for path, error in found)
                yield Record(number, node.start_mark.line + 1, data, problem)
    except YamlSyntaxError as error:
        raise BadFileError(error.message, error.line) from None


def _items(root: Any) -> list[Any]:
    """Return the list that a mapping holds under a known key; any other node is itself an item."""
    pairs = root.value if root.id == "mapping" else []
    for key, value in pairs:
        if key.value in CONTAINER_KEYS and value.id == "sequence":
            return list(value.value)
    return [root]
