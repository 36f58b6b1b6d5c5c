"""The command at a server that teams share, as in docs/security.md: the first token, login, teams, TLS."""

from __future__ import annotations

import json
import socket
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.e2e.conftest import Cli
from tests.support.services.certificates import certificate_for

from assay.identity.tokens import new_token, parse_token

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def free_port() -> int:
    """Return a port that nothing listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def is_listening(address: str) -> bool:
    """Return whether a server takes connections at an address."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=60).close()
    except OSError:
        return False
    return True


def login(cli: Cli, token: str, *options: str | Path, status: int = 0) -> subprocess.CompletedProcess[str]:
    """Log in with a token on stdin."""
    done = cli.run("login", *options, status=status, stdin=f"{token}\n".encode())
    assert token not in done.stdout + done.stderr
    return done


@pytest.fixture
def installation(project: Cli) -> Iterator[tuple[Cli, str, str]]:
    """Yield the command, the address of a server with TLS and identities, and its operator's token."""
    certificate = certificate_for("localhost")
    paths = [project.folder / name for name in ("server.pem", "server.key")]
    for path, content in zip(paths, (certificate.certificate_pem, certificate.key_pem), strict=True):
        path.write_bytes(content)
    database = project.folder / "shared.db"
    migrated = project.run("admin", "migrate", "--database", database)
    assert migrated.stdout.startswith("the tables are up to date: schema ")
    made = project.run("admin", "bootstrap", "--database", database)
    token = made.stdout.strip()
    assert parse_token(token) is not None
    assert "shown only once" in made.stderr
    address = f"localhost:{free_port()}"
    server = project.start(
        "serve", "orchestrator", "--listen", address, "--database", database, "--auth", "tokens",
        "--tls-cert", paths[0], "--tls-key", paths[1], "--no-reflection",
    )  # fmt: skip
    project.env["ASSAY_SERVER"] = address
    try:
        project.wait_until(lambda: is_listening(address), server)
        yield project, address, token
    finally:
        server.terminate()
        out, err = server.communicate(timeout=60)
        assert token.split("_")[2] not in out + err


def test_a_server_with_mutual_tls_knows_the_command_by_its_certificate(project: Cli) -> None:
    """Without one it is not reached; login stores the files, later commands and variables name them."""
    for name in ("localhost", "member"):
        certificate = certificate_for(name)
        (project.folder / f"{name}.pem").write_bytes(certificate.certificate_pem)
        (project.folder / f"{name}.key").write_bytes(certificate.key_pem)
    database, address = project.folder / "shared.db", f"localhost:{free_port()}"
    token = project.run("admin", "bootstrap", "--database", database).stdout.strip()
    server = project.start(
        "serve", "orchestrator", "--listen", address, "--database", database, "--auth", "tokens", "--no-reflection",
        "--tls-cert", "localhost.pem", "--tls-key", "localhost.key", "--tls-client-ca", "member.pem",
    )  # fmt: skip
    project.env["ASSAY_SERVER"] = address
    try:
        project.wait_until(lambda: is_listening(address), server)
        assert "no orchestrator answers" in login(project, token, "--tls-ca", "localhost.pem", status=3).stderr
        pair = ("--tls-cert", "member.pem", "--tls-key", "member.key")
        assert "logged in" in login(project, token, "--tls-ca", "localhost.pem", *pair).stdout
        assert "operators" in project.run("admin", "teams", "list").stdout
        project.run("logout")
        project.env |= {"ASSAY_TOKEN": token, "ASSAY_TLS_CA": str(project.folder / "localhost.pem")}
        own = {"ASSAY_TLS_CERT": project.folder / "member.pem", "ASSAY_TLS_KEY": project.folder / "member.key"}
        project.env |= {name: str(path) for name, path in own.items()}
        assert "operators" in project.run("admin", "teams", "list").stdout
    finally:
        server.terminate()
        server.communicate(timeout=60)


def test_a_team_works_at_a_shared_server(installation: tuple[Cli, str, str]) -> None:
    """Operator and team admin give out tokens; a member logs in once and evaluates; a revoked token is refused."""
    cli, address, operator = installation
    refused = cli.run("runs", "list", status=3)
    assert "no orchestrator answers" in refused.stderr  # it is not called over TLS: nothing says so yet
    said = login(cli, operator, "--tls-ca", "server.pem").stdout
    assert f"logged in at {address}: team operators, role operator, token {operator[6:16]} (bootstrap)" in said
    kept = cli.home / "credentials.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600

    assert "created team search" in cli.run("admin", "teams", "create", "search").stdout
    changed = ("--active-runs", "2", "--stored-bytes", "10GB", "--money-per-month", "none")
    assert "active-runs 2, stored-bytes 10.0 GB" in cli.run("admin", "quotas", "set", "search", *changed).stdout
    assert "must be bytes" in cli.run("admin", "quotas", "set", "search", "--stored-bytes", "x", status=2).stderr
    leader = cli.run("admin", "tokens", "create", "Ana", "--team", "search", "--role", "team-admin").stdout.strip()
    login(cli, leader, "--tls-ca", "server.pem")
    assert "needs the right 'operate'" in cli.run("admin", "teams", "list", status=3).stderr
    made = json.loads(cli.run("admin", "tokens", "create", "ci", "--expires", "12h", "--json").stdout)
    assert (made["team"], made["role"]) == ("search", "runner")
    done = cli.run("admin", "tokens", "list")
    listed = done.stdout
    assert "these are your own team's tokens; operators list another team's with --team TEAM" in done.stderr
    assert "within the hour from" in listed
    assert "Ana" in listed
    assert made["token_id"] in listed
    assert made["secret"].split("_")[2] not in listed

    cli.env |= {"ASSAY_TOKEN": made["secret"]}
    cli.run("run", "assay.yaml")
    [run] = json.loads(cli.run("runs", "list", "--json").stdout)["runs"]
    assert [
        found["run_id"]
        for found in json.loads(cli.run("runs", "list", "--where", "team:search", "--json").stdout)["runs"]
    ] == [run["run_id"]]
    assert "requests-per-minute    6,000  default" in cli.run("admin", "quotas", "show").stdout
    [status] = json.loads(cli.run("admin", "status", "--json").stdout)["teams"]
    assert (status["team"], status["active-runs"]) == ("search", {"used": 0, "limit": 2})
    assert status["stored-bytes"]["used"] > 0
    del cli.env["ASSAY_TOKEN"]
    assert "revoked token" in cli.run("admin", "tokens", "revoke", made["token_id"]).stdout
    assert "revoked" in cli.run("admin", "tokens", "list").stdout
    see_the_audit(cli, run["run_id"], made["token_id"])

    delete_the_team(cli, operator)

    assert "removed the stored token" in cli.run("logout").stdout
    assert "assay login" in cli.run("logout", status=3).stderr
    cli.env |= {"ASSAY_TLS_CA": str(cli.folder / "server.pem")}
    assert "this server asks for a token" in cli.run("runs", "list", status=3).stderr
    cli.env |= {"ASSAY_TOKEN": new_token().text}
    assert "not of this installation" in cli.run("runs", "list", status=3).stderr


def delete_the_team(cli: Cli, operator: str) -> None:
    """Give the team a retention, and delete it as its operator."""
    cli.env |= {"ASSAY_TOKEN": operator, "ASSAY_TLS_CA": str(cli.folder / "server.pem")}
    kept = cli.run("admin", "teams", "retention", "search", "--runs", "90d", "--audit", "52w").stdout
    assert "keeps runs 90 days, audit 364 days" in kept
    assert (
        "write 90d, 52w or never" in cli.run("admin", "teams", "retention", "search", "--runs", "soon", status=2).stderr
    )
    assert "add --yes" in cli.run("admin", "teams", "delete", "search", status=2).stderr
    gone = cli.run("admin", "teams", "delete", "search", "--yes", "--no-wait")
    assert "deleting team search; 0 runs are cancelled" in gone.stderr
    assert gone.stdout.splitlines()[0].split() == ["store", "deleted", "counted", "again"]
    assert "deleted team search: the server continues" in gone.stdout
    [listed] = [line for line in cli.run("admin", "teams", "list").stdout.splitlines() if line.startswith("search")]
    assert "90 days" in listed
    assert "its data is being deleted" in listed
    assert "which was deleted at" in cli.run("admin", "teams", "create", "search", status=2).stderr
    del cli.env["ASSAY_TOKEN"], cli.env["ASSAY_TLS_CA"]


def see_the_audit(cli: Cli, run_id: str, runner: str) -> None:
    """List, export and verify what was done in the team, with texts that a terminal or a spreadsheet would obey."""
    cli.run("admin", "tokens", "create", "=cmd|\u202e")
    listed = cli.run("admin", "audit", "list", "--limit", "20").stdout
    assert "create-team" in listed
    assert run_id in listed
    [made] = map(json.loads, cli.run("admin", "audit", "list", "--action", "create-run", "--json").stdout.splitlines())
    assert (made["resource"], made["actor"], made["actor_team"], made["count"]) == (run_id, runner, "search", 1)
    done = [json.loads(line)["action"] for line in cli.run("admin", "audit", "export").stdout.splitlines()]
    assert {"create-team", "create-token", "upload-dataset", "create-run", "revoke-token"} <= set(done)
    assert "wrote" in cli.run("admin", "audit", "export", "--format", "csv", "--output", "audit.csv").stdout
    assert cli.folder.joinpath("audit.csv").read_text().startswith("team,sequence,at,action,resource,outcome,actor,")
    checked = cli.run("admin", "audit", "verify")
    assert "unchanged" in checked.stderr
    assert json.loads(cli.run("admin", "audit", "list", "--json", "--limit", "1").stdout)["digest"] in checked.stdout
    assert "since: must be a time" in cli.run("admin", "audit", "list", "--since", "soon", status=2).stderr


def test_a_token_that_others_could_read_is_refused(project: Cli) -> None:
    """A file of tokens that is not its owner's alone is not used; the message says how to repair it."""
    project.home.mkdir()
    kept = project.home / "credentials.json"
    kept.write_text('{"servers": {}}')
    kept.chmod(0o644)
    assert f"chmod 600 {kept}" in project.run("runs", "list", "--server", "127.0.0.1:1", status=3).stderr
    kept.chmod(0o600)
    kept.write_text("{")
    assert "is damaged" in project.run("runs", "list", "--server", "127.0.0.1:1", status=3).stderr


def test_wrong_logins_store_nothing(project: Cli) -> None:
    """No token, a mistyped one, and a server that is not named are refused before anything is sent."""
    for token, said in (("", "no token was given"), (new_token().text[:-1], "cut off or mistyped")):
        assert said in project.run("login", "--server", "127.0.0.1:1", status=2, stdin=token.encode()).stderr
    assert "--server: is missing" in login(project, new_token().text, status=2).stderr
    assert not (project.home / "credentials.json").exists()
    for command in (("admin", "teams", "list"), ("logout",)):
        assert "--server: is missing" in project.run(*command, status=2).stderr
    assert (
        "--expires: must be a time such as 12h"
        in project.run("admin", "tokens", "create", "x", "--expires", "1y", "--server", "127.0.0.1:1", status=2).stderr
    )


def test_a_server_that_others_reach_needs_tls_and_identities(project: Cli) -> None:
    """A service at an address of the network does not start in the clear without --insecure."""
    for options, lacks in (
        ((), "it needs TLS (--tls-cert, --tls-key) and identities (--auth tokens), or --insecure"),
        (("--auth", "tokens"), "it needs TLS (--tls-cert, --tls-key), or --insecure"),
    ):
        done = project.run("serve", "orchestrator", "--listen", "0.0.0.0:0", *options, status=2)
        assert f"--listen: is an address that other machines reach: {lacks}" in done.stderr


def test_an_orchestrator_calls_its_embedder_over_mutual_tls(project: Cli) -> None:
    """A run with vectors needs the certificate that the embedder asks for; the embedder takes no other client."""
    files = {}
    for name, host in (("embedder", "localhost"), ("orchestrator", "orchestrator")):
        certificate = certificate_for(host)
        for suffix, content in (("pem", certificate.certificate_pem), ("key", certificate.key_pem)):
            files[f"{name}.{suffix}"] = project.folder / f"{name}.{suffix}"
            files[f"{name}.{suffix}"].write_bytes(content)
    embedder, server = f"localhost:{free_port()}", f"127.0.0.1:{free_port()}"
    processes = [
        project.start(
            "serve", "embedder", "--listen", embedder, "--tls-cert", files["embedder.pem"],
            "--tls-key", files["embedder.key"], "--tls-client-ca", files["orchestrator.pem"],
        ),
        project.start(
            "serve", "orchestrator", "--listen", server, "--database", project.folder / "o.db", "--embedder", embedder,
            "--services-ca", files["embedder.pem"], "--services-cert", files["orchestrator.pem"],
            "--services-key", files["orchestrator.key"],
        ),
    ]  # fmt: skip
    try:
        for process, address in zip(processes, (embedder, server), strict=True):
            project.wait_until(lambda address=address: is_listening(address), process)  # type: ignore[misc]  # mypy does not infer it
        project.write(
            "assay.yaml",
            "name: v\ndataset: qa.jsonl\nagent: {adapter: python, target: 'agent:answer'}\n"
            "metrics: [semantic_similarity]\ngates: ['semantic_similarity.value >= 0.1']\n",
        )
        project.run("run", "assay.yaml", "--server", server)
        probe = [sys.executable, "-m", "assay.rpc.probe", embedder]
        assert subprocess.run(probe, capture_output=True, timeout=110).returncode == 1
    finally:
        for process in processes:
            process.terminate()
            process.communicate(timeout=60)
