"""The TypeScript package and the programs of docs/api.md; `make test-clients` builds the package first."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.e2e.test_cli_identity import free_port, is_listening
from tests.support.docs.guides import ROOT, blocks
from tests.support.processes.child_process import child_process

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.clients.conftest import Orchestrator

pytestmark = pytest.mark.clients

PACKAGE = ROOT / "clients/typescript"
DEBIAN_GO = Path("/usr/share/gocode")
GO_PACKAGES = ("google.golang.org/grpc", "google.golang.org/protobuf", "google.golang.org/genproto")
CODEC = """
package main

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/protobuf/proto"
)

type codec struct{}

func (codec) Marshal(message interface{}) ([]byte, error) { return proto.Marshal(message.(proto.Message)) }
func (codec) Unmarshal(data []byte, message interface{}) error {
	return proto.Unmarshal(data, message.(proto.Message))
}
func (codec) Name() string { return "proto" }
func init()                { encoding.RegisterCodec(codec{}) }
"""
"""Debian's gRPC for Go is older than its protobuf, and cannot encode the messages of newer stubs on its own."""


@pytest.fixture
def node() -> str:
    """The path of Node.js."""
    path = shutil.which("node")
    if path is None or not (PACKAGE / "dist/index.js").is_file():
        pytest.fail("the package is not built: run `make test-clients`, with node and npm on PATH")
    return path


@pytest.fixture(scope="session")
def go_stubs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a workspace of Go with stubs that are generated as docs/api.md says."""
    go, plugin = shutil.which("go"), shutil.which("protoc-gen-go-grpc")
    if go is None or plugin is None or not all((DEBIAN_GO / "src" / name).is_dir() for name in GO_PACKAGES):
        pytest.skip("Go is missing: install Debian's golang-go, golang-google-grpc-dev and protoc-gen-go-grpc")
    folder = tmp_path_factory.mktemp("go")
    environment = {
        **os.environ, "GO111MODULE": "off", "GOPATH": f"{folder}:{DEBIAN_GO}", "GOCACHE": str(folder / "cache"),
        "GOFLAGS": "",
    }  # fmt: skip
    generator = folder / "bin/protoc-gen-go"
    subprocess.run(
        [go, "build", "-o", generator, "google.golang.org/protobuf/cmd/protoc-gen-go"], env=environment, check=True
    )
    (folder / "src").mkdir()
    protos = ROOT / "protos"
    files = [
        str(file.relative_to(protos)) for name in ("v1", "agent/v1") for file in protos.glob(f"assay/{name}/*.proto")
    ]
    subprocess.run(
        [
            ROOT / ".venv-protos/bin/python", "-m", "grpc_tools.protoc", "-I", protos,
            f"--plugin={generator}", f"--plugin={plugin}", f"--go_out={folder}/src", f"--go-grpc_out={folder}/src",
            *files,
        ],
        check=True,
    )  # fmt: skip
    return environment


def go_program(index: int, folder: Path, environment: dict[str, str], **changes: str) -> Path:
    """Build one of the programs of docs/api.md, and return its path."""
    text = blocks("docs/api.md", "go")[index].text
    for old, new in changes.items():
        text = text.replace(old.removeprefix("_"), new)
    (folder / "main.go").write_text(text, encoding="utf-8")
    (folder / "codec.go").write_text(CODEC, encoding="utf-8")
    subprocess.run(["go", "vet", "main.go", "codec.go"], cwd=folder, env=environment, check=True)
    subprocess.run(["go", "build", "-o", "program", "main.go", "codec.go"], cwd=folder, env=environment, check=True)
    return folder / "program"


def test_the_package_works_against_a_server_of_teams(node: str, orchestrator: Orchestrator, tmp_path: Path) -> None:
    """All tests of the package pass; in the last the orchestrator is killed while it waits for answers."""
    log = tmp_path / "node.log"
    with (
        log.open("w", encoding="utf-8") as out,
        child_process(
            [node, "--test-reporter=spec", "test/client.test.mjs"], cwd=PACKAGE, env=orchestrator.environment,
            text=True, stdin=subprocess.PIPE, stdout=out, stderr=subprocess.PIPE,
        ) as tests,
    ):  # fmt: skip
        assert tests.stdin is not None
        assert tests.stderr is not None
        for line in tests.stderr:
            if "kill the orchestrator" in line:
                orchestrator.restart()
                tests.stdin.write("\n")
                tests.stdin.flush()
        assert tests.wait() == 0, log.read_text("utf-8")[-6000:]


def test_a_client_in_go(orchestrator: Orchestrator, go_stubs: dict[str, str], tmp_path: Path) -> None:
    """The program of the guide uploads, runs, hosts, watches, and reads the reason of an error."""
    program = go_program(0, tmp_path, go_stubs)
    done = subprocess.run([program], env=orchestrator.environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    *rows, verdict, reason = done.stdout.splitlines()
    assert sorted(rows) == ["france passed: true", "kenya passed: true", "peru passed: false"]
    assert (verdict, reason) == ("verdict: RUN_VERDICT_PASS", "reason: RUN_NOT_FOUND")


def test_the_readme_of_the_package(node: str, orchestrator: Orchestrator) -> None:
    """Its program evaluates an agent and reads the rows."""
    (text,) = [block.text for block in blocks("clients/typescript/README.md", "ts")]
    connection = (
        "{ address: process.env.ASSAY_ADDRESS!, token: process.env.ASSAY_TOKEN!, "
        'tls: { ca: (await import("node:fs")).readFileSync(process.env.ASSAY_CA!, "utf-8") } }'
    )
    with compiled(node, text.replace('{ address: "localhost:50050" }', connection)) as program:
        done = subprocess.run(
            [node, program], cwd=PACKAGE, env=orchestrator.environment, capture_output=True, text=True, timeout=100
        )
    assert done.returncode == 0, done.stderr
    verdict, *rows = done.stdout.splitlines()
    assert verdict.endswith(" PASS")
    assert rows == ["france false Lyon", "peru true Lima"]


@pytest.mark.parametrize("stream", [False, True])
def test_an_agent_in_typescript(node: str, orchestrator: Orchestrator, stream: bool) -> None:
    """The agent of the guide answers calls and streams."""
    port = str(free_port())
    (text,) = [block.text for block in blocks("docs/api.md", "ts")]
    with compiled(node, text.replace("50051", port)) as program:
        asked_as_documented([node, str(program)], PACKAGE, port, orchestrator, stream=stream)


@contextmanager
def compiled(node: str, text: str) -> Iterator[Path]:
    """Compile a program beside the package, which it imports by its name, and yield its path."""
    source = PACKAGE / f"program-{uuid.uuid4().hex}.mts"
    source.write_text(text, encoding="utf-8")
    options = ["--ignoreConfig", "--module", "NodeNext", "--target", "ES2022", "--strict", "--skipLibCheck"]
    try:
        subprocess.run(
            [PACKAGE / "node_modules/.bin/tsc", *options, "--types", "node", source.name], cwd=PACKAGE, check=True,
            env={**os.environ, "PATH": f"{Path(node).parent}:{os.environ['PATH']}"},
        )  # fmt: skip
        yield source.with_suffix(".mjs")
    finally:
        source.unlink()
        source.with_suffix(".mjs").unlink(missing_ok=True)


def test_an_agent_in_go(go_stubs: dict[str, str], orchestrator: Orchestrator, tmp_path: Path) -> None:
    """The agent of the guide answers calls."""
    port = str(free_port())
    program = go_program(1, tmp_path, go_stubs, _50051=port)
    asked_as_documented([str(program)], tmp_path, port, orchestrator, stream=False)


def asked_as_documented(
    command: list[str], folder: Path, port: str, orchestrator: Orchestrator, *, stream: bool
) -> None:
    """Start an agent, and run the command over it as a team."""
    address = f"127.0.0.1:{port}"
    orchestrator.cli.write("cases.json", json.dumps([{"question": "hello", "answer": "You asked: hello"}]))
    spec: dict[str, object] = {
        "name": "echo", "dataset": "cases.json", "metrics": ["exact_match"],
        "agent": {"adapter": "grpc", "target": address, "stream": stream},
    }  # fmt: skip
    with child_process(command, cwd=folder, stdout=sys.stderr) as process:
        orchestrator.cli.wait_until(lambda: is_listening(address), process)
        assert "1 of 1" in orchestrator.run_as_team(address, spec)
