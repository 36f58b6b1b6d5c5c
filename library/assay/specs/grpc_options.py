"""The grpc adapter's options: the address of an AgentService, and the metadata sent with its questions."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from assay.errors import Problem
from assay.http.addresses import host_problem
from assay.parsing.fields import Fields
from assay.parsing.names import kind_of, unknown_name
from assay.specs.headers import OWN_HEADERS, credential_problem, read_texts

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

GRPC_KEYS = ("tls", "metadata", "stream")
"""The option names in a spec."""

_TLS_KEYS = ("ca", "ca_pem")
_MAX_PEM_BYTES = 64 * 1024
# Only a host and a port: gRPC gives prefixes such as "unix:" and "xds:" a meaning of their own.
_TARGET = re.compile(r"(?P<host>[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})")
_METADATA_KEY = re.compile(r"[0-9a-z_.-]+")
_OWN_KEYS = OWN_HEADERS | {"content-type", "user-agent"}


@dataclass(frozen=True, slots=True)
class GrpcOptions:
    """How a service is called.

    Args:
        tls: Whether the connection is encrypted and the server must prove its identity.
        ca_pem: Trusted authorities' certificates, as PEM; empty for those of the system.
        metadata: Metadata of each call; the caller replaces `${NAME}` by an environment variable.
        stream: Whether answers are streamed, through AnswerStream.
    """

    tls: bool = False
    ca_pem: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    stream: bool = False

    @classmethod
    def from_options(cls, options: Mapping[str, Any], problems: list[Problem]) -> GrpcOptions:
        """Return the options of a spec; append problems to `problems`."""
        fields = Fields.of_agent(options, problems)
        fields.unknown(GRPC_KEYS, "option of the grpc adapter")
        metadata = read_texts(options.get("metadata"), "agent.metadata", problems)
        problems += [
            Problem(problem, f"agent.metadata.{name}")
            for name, value in metadata.items()
            if (problem := _metadata_problem(name, value))
        ]
        tls = False if options.get("tls") is None else options["tls"]
        ca_pem = _ca_pem(tls, problems) if isinstance(tls, dict) else ""
        if not isinstance(tls, bool | dict):
            problems.append(Problem(f"must be true, false or {{ca: FILE}}, not {kind_of(tls)}", "agent.tls"))
        return cls(tls=tls is not False, ca_pem=ca_pem, metadata=metadata, stream=fields.flag("stream"))


def target_problem(target: str) -> str:
    """Return why a target is not HOST:PORT; empty if it is."""
    if "@" in target:
        # The message omits the target, which contains a password.
        return "must be HOST:PORT without a name or password: send it as metadata, with ${NAME} of a variable"
    if "://" in target:
        return f"must be HOST:PORT, e.g. 127.0.0.1:50051, not the URL {target!r}; tls says whether it is encrypted"
    match = _TARGET.fullmatch(target)
    if match is None or not 1 <= int(match["port"]) <= 65_535:
        return f"must be HOST:PORT, e.g. 127.0.0.1:50051, not {target!r}"
    problem = host_problem(target_host(target))
    return f"{problem}: {target!r}" if problem else ""


def target_host(target: str) -> str:
    """Return the host of a target in lower case, without the brackets of an address; empty if there is none."""
    match = _TARGET.fullmatch(target)
    return "" if match is None else match["host"].strip("[]").lower()


def read_ca_file(options: dict[str, Any], base_dir: Path) -> list[Problem]:
    """Add the certificates of `tls.ca` to the options beside their file name; return the problems.

    Args:
        options: The options, changed in place.
        base_dir: The folder that a relative name is resolved against.
    """
    tls = options.get("tls")
    if not isinstance(tls, dict) or tls.get("ca") is None or "ca_pem" in tls:
        return []
    file = tls["ca"]
    if not isinstance(file, str) or not file.strip():
        return [Problem(f"must be a file name, not {kind_of(file)}", "agent.tls.ca")]
    from pathlib import Path

    try:
        pem = (base_dir / Path(file).expanduser()).read_bytes()[: _MAX_PEM_BYTES + 1].decode("latin-1")
    except FileNotFoundError:
        return [Problem(f"there is no file {file!r} beside the spec", "agent.tls.ca")]
    except (OSError, RuntimeError) as error:
        return [Problem(f"{file!r} cannot be read: {getattr(error, 'strerror', None) or error}", "agent.tls.ca")]
    options["tls"] = {**tls, "ca_pem": pem}
    return []


def _ca_pem(tls: Mapping[str, Any], problems: list[Problem]) -> str:
    unknown = [name for name in tls if name not in _TLS_KEYS]
    problems += [Problem(unknown_name("field of agent.tls", name, ("ca",)), f"agent.tls.{name}") for name in unknown]
    pem = tls.get("ca_pem")
    if pem is None and not unknown:
        problems.append(Problem("must name the file with the certificates of your authority", "agent.tls.ca"))
    if not isinstance(pem, str):
        return ""
    if problem := _pem_problem(pem):
        problems.append(Problem(problem, "agent.tls.ca"))
    return pem


def _pem_problem(pem: str) -> str:
    import ssl  # imported here: most specs have no certificates

    if "PRIVATE KEY-----" in pem:
        return "holds a private key, which would be stored with the run: name a file of certificates alone"
    if len(pem) > _MAX_PEM_BYTES:
        return f"is larger than {_MAX_PEM_BYTES // 1024} KiB: name a file of the authorities that vouch for this server"
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pem)
    except (ssl.SSLError, ValueError):
        return "holds no certificate that can be read: it must be PEM, beginning with -----BEGIN CERTIFICATE-----"
    return ""


def _metadata_problem(name: str, value: str) -> str:
    if not _METADATA_KEY.fullmatch(name):
        return "is not a valid metadata name: use lower-case letters, digits, '-', '_' and '.'"
    if name.endswith("-bin"):
        return "names binary metadata, which a spec cannot hold: use another name, and a text"
    if name in _OWN_KEYS or name.startswith("grpc-"):
        return "is set by gRPC: remove it"
    if not (value.isascii() and value.isprintable()):
        return "must be printable ASCII"
    return credential_problem(name, value)
