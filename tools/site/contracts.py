"""The reference of the contracts: one page a .proto file, made from its comments.

No maintained generator writes Markdown from comments, so this reads the image that buf builds.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, ServiceDescriptorProto

ROOT = Path(__file__).resolve().parents[2]
_FILE_SYNTAX, _FILE_PACKAGE = (12,), (2,)
_SERVICE, _ENUM, _MESSAGE = 6, 5, 4
_FIELD, _NESTED, _NESTED_ENUM = 2, 3, 4


def write_contracts(folder: Path) -> list[str]:
    """Write a page for each file of the contracts into a folder, and return their names."""
    command: list[str | Path] = [Path(sys.executable).with_name("buf"), "build", "--as-file-descriptor-set", "-o", "-"]
    image = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    files = [file for file in FileDescriptorSet.FromString(image).file if file.package.startswith("assay")]
    pages = []
    for file in files:
        name = Path(file.name).stem
        (folder / f"{name}.md").write_text(_Page(file).text(), encoding="utf-8")
        pages.append(name)
    return pages


class _Page:
    """The page of one file."""

    def __init__(self, file: FileDescriptorProto) -> None:
        self._file = file
        self._comments = {
            tuple(place.path): _markdown(place.leading_comments or place.trailing_comments)
            for place in file.source_code_info.location
        }

    def text(self) -> str:
        """Return the page as MyST Markdown."""
        file = self._file
        lines = [f"# {Path(file.name).name}", self._comments.get(_FILE_PACKAGE, ""), f"Package `{file.package}`."]
        for index, service in enumerate(file.service):
            lines += self._service(service, (_SERVICE, index))
        for index, message in enumerate(file.message_type):
            lines += self._message(message, (_MESSAGE, index), file.package)
        for index, enum in enumerate(file.enum_type):
            lines += self._enum(enum, (_ENUM, index), file.package)
        return "\n\n".join(line for line in lines if line) + "\n"

    def _service(self, service: ServiceDescriptorProto, path: tuple[int, ...]) -> Iterator[str]:
        yield from self._heading("##", service.name, self._file.package, path)
        for index, method in enumerate(service.method):
            yield from self._heading("###", method.name, f"{self._file.package}.{service.name}", (*path, 2, index))
            takes = f"{'stream of ' if method.client_streaming else ''}{_link(method.input_type)}"
            yield f"{takes} → {'stream of ' if method.server_streaming else ''}{_link(method.output_type)}"

    def _message(self, message: DescriptorProto, path: tuple[int, ...], scope: str) -> Iterator[str]:
        if message.options.map_entry:
            return
        yield from self._heading("##", message.name, scope, path)
        entries = [entry for entry in message.nested_type if entry.options.map_entry]
        maps = {f".{scope}.{message.name}.{entry.name}": entry for entry in entries}
        rows = [
            (f"`{field.name}`", _type(field, maps), self._comments.get((*path, _FIELD, index), ""))
            for index, field in enumerate(message.field)
        ]
        yield _table(("field", "type", "meaning"), rows)
        inner = f"{scope}.{message.name}"
        for index, nested in enumerate(message.nested_type):
            yield from self._message(nested, (*path, _NESTED, index), inner)
        for index, enum in enumerate(message.enum_type):
            yield from self._enum(enum, (*path, _NESTED_ENUM, index), inner)

    def _enum(self, enum: EnumDescriptorProto, path: tuple[int, ...], scope: str) -> Iterator[str]:
        yield from self._heading("##", enum.name, scope, path)
        rows = [
            (f"`{value.name}`", str(value.number), self._comments.get((*path, 2, index), ""))
            for index, value in enumerate(enum.value)
        ]
        yield _table(("value", "number", "meaning"), rows)

    def _heading(self, level: str, name: str, scope: str, path: tuple[int, ...]) -> Sequence[str]:
        return (f"({scope}.{name})=\n{level} {name}", self._comments.get(path, ""))


def _markdown(comment: str) -> str:
    """Return a comment without the indentation that follows its slashes."""
    return re.sub(r"^ ", "", comment, flags=re.MULTILINE).strip().replace("<", "\\<").replace("[", "\\[")


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Return a table, or nothing if it has no rows."""
    if not rows:
        return ""
    cells = [head, tuple("---" for _ in head), *rows]
    lines = [" | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in row) for row in cells]
    return "\n".join(f"| {line} |" for line in lines)


def _type(field: FieldDescriptorProto, maps: dict[str, DescriptorProto]) -> str:
    """Return the type of a field, with a link to a message or enum."""
    if field.type_name in maps:
        key, value = maps[field.type_name].field
        return f"map of {_type(key, {})} to {_type(value, {})}"
    name = FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    plain = _link(field.type_name) if field.type_name else name
    if field.label == FieldDescriptorProto.LABEL_REPEATED:
        return f"repeated {plain}"
    return f"optional {plain}" if field.proto3_optional else plain


def _link(type_name: str) -> str:
    """Return a link to a type of the contracts, or the name of another one."""
    full = type_name.removeprefix(".")
    return f"[{full.rpartition('.')[2]}](#{full})" if full.startswith("assay.") else f"`{full}`"
