"""Every method of a shared installation × every field that names something × names that the caller does not have.

Methods and fields come from the descriptors: a new method is tried by itself, and a field of a new kind fails here
until the world below has a name of its kind.
"""

from __future__ import annotations

import dataclasses
import re
import secrets
import uuid
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.field_mask_pb2 import FieldMask
from tests.support.services.ended_runs import await_end
from tests.support.services.shared_installation import SharedInstallation, shared_installation

from assay.admin.v1 import admin_pb2
from assay.client import admin, baselines, calibrations
from assay.client.client import Client
from assay.identity.rights import RIGHTS, Role
from assay.model.answers.agent_response import AgentResponse, AgentStatus
from assay.model.case import Case, Turn
from assay.model.judge_calibration import JudgeCalibration
from assay.rpc.methods import METHODS, Name
from assay.rpc.status import from_rpc_error
from assay.v1 import host_pb2, run_pb2
from assay.wire.run import SETTINGS
from assay_orchestrator.service import SERVICES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from google.protobuf.descriptor import MethodDescriptor
    from google.protobuf.message import Message

    from assay.model.run import RunSpec

    SettingsOf = Callable[..., RunSpec]
    Outcome = tuple[object, ...]

SERVED = (*SERVICES, "assay.admin.v1.AdminService")
ROLE = Role.TEAM_ADMIN
MALFORMED = ("../../etc/passwd", "x" * 5000, "%00", "é\u202e", "' OR 1=1 --", "teams/b/runs/r", "\u0000")
_OK: Outcome = (grpc.StatusCode.OK,)


@dataclass
class World:
    """What one team has, and a client of it.

    Args:
        client: Its client.
        names: A name of each kind, by the last part of the field that takes it; of page tokens by their method.
        deleted: Names that it had.
        secrets: Texts that no other team may see.
    """

    client: Client
    names: dict[str, str]
    deleted: dict[str, str]
    secrets: list[str]


async def world(shared: SharedInstallation, team: str, settings: RunSpec) -> World:
    """Return a team with two finished runs, a baseline, pages, a deleted run and a spare token."""
    client = await shared.member(team, ROLE)
    secret = f"secret-of-{team}"
    case_ids = [f"case-of-{team}-{number}" for number in range(3)]
    recorded = AgentResponse(AgentStatus.SUCCESS, text="yes")
    cases = [
        Case(case_id, (Turn("?", references=("yes",)),), recordings=((recorded,), (recorded,))) for case_id in case_ids
    ]
    dataset = await client.upload_dataset(cases, name=secret)
    settings = dataclasses.replace(settings, name=secret, repeats=2, group_id=f"group-of-{team}")
    runs = []
    for number in range(4):
        run = await client.create_run(settings, dataset.dataset_id, request_id=f"request-of-{team}-{number}")
        await await_end(client, run.run_id)
        runs.append(run.run_id)
    *kept, gone = runs
    await client.delete_run(gone)
    for name in (f"baseline-of-{team}", f"other-baseline-of-{team}"):  # one is tried after the other is changed
        await baselines.set_baseline(client, name, kept[0])
    for name in (f"destination-of-{team}", f"other-destination-of-{team}"):
        await admin.create_destination(client, name, f"{team}.example.org")
    calibration = JudgeCalibration(
        secret, fingerprints=("sha256:1",), answer_count=60, measure="alpha_interval", trust="unknown", drawing="random"
    )
    await calibrations.set_calibration(client, dataclasses.replace(calibration, criterion=secret))
    calibrated = await calibrations.set_calibration(client, calibration)
    spare = (await admin.create_token(client, "viewer", secret)).token.token_id
    await client.upload_dataset(cases[:1], name=secret)
    names = {
        "run_id": kept[0],
        "source_run_id": kept[0],
        "run_ids": kept[1],
        "dataset_id": dataset.dataset_id,
        "request_id": f"request-of-{team}-0",
        "group_id": settings.group_id,
        "case_id": case_ids[0],
        "SetBaseline.name": f"other-baseline-of-{team}",
        "DeleteBaseline.name": f"baseline-of-{team}",
        "calibration_id": calibrated.calibration_id,
        "CreateDestination.name": f"other-destination-of-{team}",
        "DeleteDestination.name": f"destination-of-{team}",
        "team": team,
        "token_id": spare,
        "page_token": "of-a-list-without-a-second-page",
    }
    assert all(names.values())
    deleted = {"run_id": gone, "run_ids": gone, "source_run_id": gone}
    own = World(client, names, deleted, [secret, *runs, *case_ids])
    for method in served_methods():
        if is_paged_for_team(method):
            own.names[f"{method.name}.page_token"] = await second_page(own, method, settings)
    return own


def served_methods() -> list[MethodDescriptor]:
    """Return the methods of all services of an installation."""
    pool = descriptor_pool.Default()
    return [method for service in SERVED for method in pool.FindServiceByName(service).methods]


def is_paged_for_team(method: MethodDescriptor) -> bool:
    """Return whether a method returns pages that a team's role may read, of more than the team itself."""
    rule = METHODS[method.containing_service.full_name][method.name]
    return "page_token" in rule.names and rule.right in RIGHTS[ROLE] and method.name != "ListTeamUsage"


async def second_page(own: World, method: MethodDescriptor, settings: RunSpec) -> str:
    """Return the token of the second page of a list."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    request = example(method, own, settings).SerializeToString()
    call: Any = own.client._channel.unary_unary(path)
    raw: bytes = await call(request, timeout=60)
    token: str = message_factory.GetMessageClass(method.output_type).FromString(raw).next_page_token  # type: ignore[attr-defined]  # every page has one
    assert token, f"{method.name} has a single entry: give each team two"
    return token


def example(method: MethodDescriptor, own: World, settings: RunSpec) -> Any:
    """Return a request that succeeds or is refused for another reason than its names, with own names throughout."""
    examples: Mapping[str, Message] = {
        "CreateRun": run_pb2.CreateRunRequest(spec=SETTINGS.to_wire(settings)),
        "DeleteRun": run_pb2.DeleteRunRequest(validate_only=True),
        "UpdateRun": run_pb2.UpdateRunRequest(note="n", update_mask=FieldMask(paths=["note"])),
        "CreateDestination": admin_pb2.CreateDestinationRequest(address="example.org"),
        "Host": host_pb2.HostRequest(attach=host_pb2.AttachAgent(concurrency=1)),
    }
    request: Any = message_factory.GetMessageClass(method.input_type)()
    if method.name in examples:
        request.CopyFrom(examples[method.name])
    if "page_size" in method.input_type.fields_by_name:
        request.page_size = 1
    for path, kind in METHODS[method.containing_service.full_name][method.name].names.items():
        if path == "request_id":
            put(request, path, str(uuid.uuid4()))
        elif kind is Name.TEAM and method.containing_service.name == "AdminService":
            put(request, path, own.names["team"])
        elif kind is Name.SCOPED and not is_optional(method.name, path):
            if path == "run_ids":
                put(request, path, own.names["run_id"])
            put(request, path, name_in(own, method, path))
    return request


def is_optional(method: str, path: str) -> bool:
    """Return whether a request does well without this name; a destination is deleted once, with its own name."""
    left_out = {("ListRows", "case_id"), ("DeleteDestination", "name")}
    return path in ("page_token", "spec.group_id", "spec.source_run_id") or (method, path) in left_out


def name_in(found: World, method: MethodDescriptor, path: str) -> str:
    """Return the team's name for a field."""
    field = path.rpartition(".")[2]
    return found.names.get(f"{method.name}.{field}") or found.names[field]


def put(request: Any, path: str, value: str) -> None:
    """Set the name at a path; beside one of its own in a field of several."""
    *parents, field = path.split(".")
    for parent in parents:
        request = getattr(request, parent)
    if request.DESCRIPTOR.fields_by_name[field].is_repeated:
        others = list(getattr(request, field))[:1]
        del getattr(request, field)[:]
        getattr(request, field).extend([*others, value])
    else:
        setattr(request, field, value)


async def outcome(client: Client, method: MethodDescriptor, request: Message, hidden: list[str]) -> Outcome:
    """Return how a call ends, without the texts of its answer, which must hold no secret."""
    kind = "_".join("stream" if s else "unary" for s in (method.client_streaming, method.server_streaming))
    full_name = f"/{method.containing_service.full_name}/{method.name}"
    raw: Any = request.SerializeToString()
    call: Any = getattr(client._channel, kind)(full_name)(iter([raw]) if method.client_streaming else raw, timeout=60)
    try:
        answer = await (call.read() if method.server_streaming else call)
    except grpc.aio.AioRpcError as error:
        trailers = b"".join(str(value).encode() for _, value in error.trailing_metadata() or ())
        require_none_of(hidden, f"{error.details()} {trailers!r}", request)
        known = from_rpc_error(error)
        return error.code(), type(known), known.reason, known.message
    finally:
        call.cancel()
    if answer is not grpc.aio.EOF:
        require_none_of(hidden, answer.decode("utf-8", "replace"), request)
    return _OK


def require_none_of(hidden: list[str], text: str, request: Message) -> None:
    """Fail if an answer holds a text of another team that its request did not have."""
    given = str(request)
    assert not [secret for secret in hidden if secret in text and secret not in given], text


def without(found: Outcome, name: str) -> Outcome:
    """Return an outcome with the name that was asked for taken out."""
    spellings = sorted({name, repr(name), ascii(name)}, key=len, reverse=True)

    def clean(part: object) -> object:
        for spelling in spellings:
            if isinstance(part, str):
                part = re.sub(rf"(?<!\w){re.escape(spelling)}(?!\w)", "NAME", part)
        return part

    return tuple(map(clean, found))


def lookalikes(name: str) -> list[str]:
    """Return names that people, or careless comparisons, take for another one."""
    changed = [name.swapcase(), f"{name} ", f" {name}", name.replace("a", "а", 1), f"{name}\u200b", name[:-1]]
    return [other for other in changed if other != name]


def missing(name: str) -> str:
    """Return a name of the same form that nothing has."""
    middle = len(name) // 2
    return name[:middle] + secrets.token_hex(len(name))[: len(name) - middle]


async def try_field(own: World, other: World, method: MethodDescriptor, path: str, settings: RunSpec) -> Counter[str]:
    """Compare every wrong name in one field with a missing one; return how many were tried by their kind."""
    tried: Counter[str] = Counter()

    async def end(name: str) -> Outcome:
        request = example(method, own, settings)
        put(request, path, name)
        return without(await outcome(own.client, method, request, other.secrets), name)

    theirs, ours = name_in(other, method, path), name_in(own, method, path)
    expected = await end(missing(theirs))
    wrong = {
        "other": [theirs],
        "deleted": [found.deleted[path] for found in (own, other) if path in found.deleted],
        "look-alike": [*lookalikes(theirs), *lookalikes(ours)],
    }
    for kind, names in wrong.items():
        for name in names:
            assert await end(name) == expected, (method.name, path, kind, name)
            tried[kind] += 1
    for name in MALFORMED:
        code = (await end(name))[0]
        made_before = (grpc.StatusCode.OK,) if path == "name" else ()  # as a baseline of the caller's own
        assert code in (expected[0], grpc.StatusCode.INVALID_ARGUMENT, *made_before), (method.name, path, name)
        tried["malformed"] += 1
    rule = METHODS[method.containing_service.full_name][method.name]
    if rule.right in RIGHTS[ROLE] and expected != _OK and ours != theirs:
        assert await end(ours) != expected, f"{method.name} does not look at {path}"
        tried["own"] += 1
    return tried


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_names_of_other_teams_are_names_that_do_not_exist(
    tmp_path: Path, database_url: str, settings_of: SettingsOf
) -> None:
    """No code, reason or text, and no answer, tells a name of another team, or a deleted one, from one never made."""
    async with shared_installation(tmp_path) as shared:
        settings = settings_of()
        own, other = await world(shared, "alpha", settings), await world(shared, "beta", settings)
        tried: Counter[str] = Counter()
        for method in served_methods():
            for path, kind in METHODS[method.containing_service.full_name][method.name].names.items():
                if kind is not Name.LABEL:
                    tried += await try_field(own, other, method, path, settings)
        assert min(tried[kind] for kind in ("own", "other", "deleted", "look-alike", "malformed")) > 15
