"""The service on one host: what docker-compose.yml and the images say is what the services understand."""

from __future__ import annotations

import importlib
import importlib.util
import re
import tomllib
from typing import Any

import pytest
import yaml
from tests.support.docs.compose_file import (
    FILE,
    IMAGES,
    LIVE,
    ROOT,
    SERVICES,
    TASKS,
    TEXT,
    VARIABLE,
    dockerfile,
    image_environment,
    mounts,
    program,
)

from assay.version import __version__
from assay_embedder.settings import Settings as Embedder
from assay_judge.settings import Settings as Judge
from assay_orchestrator.settings import Settings as Orchestrator

GUIDE = (ROOT / "docs" / "installation.md").read_text(encoding="utf-8")
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
KINDS = {"embedder": Embedder.read, "judge": Judge.read, "orchestrator": Orchestrator.read}
OWN = {name: kind for name, kind in IMAGES.items() if name not in TASKS}
"""The services of Assay that serve, with their images."""


def settings(name: str) -> Any:
    """Return the settings that a process has in its container: of its command line, its environment, its image."""
    given = {key: value or "" for key, value in SERVICES[name].get("environment", {}).items()}
    return KINDS[OWN[name]](SERVICES[name]["command"], image_environment(OWN[name]) | given)


def port_of(address: str) -> str:
    """Return the port of an address."""
    return address.rpartition(":")[2]


def seconds(text: str) -> int:
    """Return a duration such as 40s in seconds."""
    return int(text.removesuffix("s"))


def test_there_is_one_of_all_and_two_of_what_may_fail() -> None:
    """Two processes answer and two work, over one database."""
    roles = [settings(name).role for name, kind in OWN.items() if kind == "orchestrator"]
    assert sorted(roles) == ["api", "api", "worker", "worker"]
    assert set(OWN.values()) == set(KINDS)
    assert set(SERVICES) - set(OWN) == {"database", *TASKS}


@pytest.mark.parametrize("name", OWN)
def test_every_command_line_is_one_that_the_service_takes(name: str) -> None:
    """A renamed flag or an invalid value is detected here."""
    options = settings(name)
    assert options.listen.startswith("127.0.0.1:" if name.startswith("worker") else "0.0.0.0:")
    assert SERVICES[name]["healthcheck"]["test"][-1] == options.health_listen == "127.0.0.1:7080"
    assert seconds(SERVICES[name]["stop_grace_period"]) >= options.grace_s + 5


@pytest.mark.parametrize("name", [name for name, kind in OWN.items() if kind == "orchestrator"])
def test_orchestrators_find_what_they_rest_on(name: str) -> None:
    """Addresses name services of the file with their ports, on a shared network."""
    options = settings(name)
    for kind in ("embedder", "judge"):
        assert getattr(options, kind) == f"{kind}:{port_of(settings(kind).listen)}"
        assert set(SERVICES[kind]["networks"]) & set(SERVICES[name]["networks"])
    user, host, database = re.findall(r"postgresql://(\w+)@(\w+):5432/(\w+)", options.database_url)[0]
    environment = SERVICES[host]["environment"]
    assert (user, database) == (environment["POSTGRES_USER"], environment["POSTGRES_DB"])
    assert SERVICES[name]["environment"]["PGPASSWORD"] == environment["POSTGRES_PASSWORD"] == "<POSTGRES_PASSWORD>"
    ended = {key: {"condition": "service_completed_successfully"} for key in ("certificates", "migrate")}
    assert SERVICES[name]["depends_on"] == {host: {"condition": "service_healthy"}, **ended}
    assert options.migrations == "wait"
    for published in SERVICES[name].get("ports", []):
        assert published.startswith("127.0.0.1:")
        assert port_of(published) == port_of(options.listen)


def test_the_judge_keeps_its_books_in_the_database() -> None:
    """The judge uses the orchestrators' database, so that a cap holds over several judges."""
    own, other = SERVICES["judge"], SERVICES["worker-1"]
    assert settings("judge").database_url == settings("worker-1").database_url
    assert own["environment"]["PGPASSWORD"] == other["environment"]["PGPASSWORD"]
    assert own["depends_on"].items() <= other["depends_on"].items()


@pytest.mark.parametrize("name", OWN)
def test_every_connection_has_tls_and_a_known_caller(name: str) -> None:
    """Clients have tokens, services certificates; each process reads its own alone."""
    options = settings(name)
    assert not options.insecure
    if OWN[name] == "orchestrator":
        assert options.services_tls is not None
        assert (options.server_tls is not None, options.auth) == (
            (True, "tokens") if options.role == "api" else (False, "none")
        )
    else:
        assert options.tls_client_ca is not None
    files = [
        getattr(options, key, None) for key in ("tls_cert", "tls_key", "tls_client_ca", "services_ca", "services_key")
    ]
    held = {target: source for source, target, is_writable in mounts(name) if not is_writable}
    assert {str(file.parent) for file in files if file is not None} == set(held)
    kind = "api" if name.startswith("api") else OWN[name]
    assert set(held.values()) <= {f"tls-{kind}", *(["tls-orchestrator"] if OWN[name] == "orchestrator" else [])}


def test_certificates_are_made_for_the_names_that_are_called() -> None:
    """For every volume of certificates, one of the right use; the authority's key is mounted nowhere else."""
    made = dict(word.split("=", 1) for word in SERVICES["certificates"]["command"] if "=" in word)
    assert {source: target for source, target, _ in mounts("certificates") if source != "./deploy/compose"} == {
        "authority": "/certificates/authority", **{f"tls-{name}": f"/certificates/{name}" for name in made}
    }  # fmt: skip
    for name, address in ((kind, getattr(settings("api-1"), kind)) for kind in ("embedder", "judge")):
        assert made[name] == f"server:{address.partition(':')[0]}"
    assert made["api"] == "server:localhost,127.0.0.1"
    assert made["orchestrator"] == "client"
    assert [name for name in SERVICES if "authority" in [source for source, _, _ in mounts(name)]] == ["certificates"]
    uid = re.search(r"^USER (\d+)$", dockerfile("orchestrator"), re.MULTILINE)
    assert uid is not None
    assert uid[1] in SERVICES["certificates"]["command"]


@pytest.mark.parametrize("name", TASKS)
def test_a_task_runs_once_with_as_few_rights_as_a_service(name: str) -> None:
    """It is not started again; the program exists; who makes certificates reaches no network."""
    task = SERVICES[name]
    assert (task["restart"], task["read_only"], task["cap_drop"]) == ("no", True, ["ALL"])
    assert IMAGES[name] == "orchestrator"
    python, *words = program(name)
    assert python == "python"
    if words[0] == "-m":
        assert importlib.util.find_spec(words[1]) is not None
        assert task["networks"] == ["data"]
        assert task["environment"]["ASSAY_DATABASE_URL"] == settings("api-1").database_url
    else:
        assert (ROOT / "deploy/compose" / words[0].rpartition("/")[2]).exists()
        assert task["network_mode"] == "none"
        assert task["cap_add"] == ["CHOWN"]
    assert ("profiles" in task) is (name == "bootstrap")  # `up` makes no token: each would be printed in a log


def test_nobody_but_orchestrators_and_judge_reaches_the_database() -> None:
    """It publishes no port, and its network leads nowhere."""
    assert "ports" not in SERVICES["database"]
    (network,) = SERVICES["database"]["networks"]
    assert FILE["networks"][network] == {"internal": True}
    assert {OWN[name] for name in OWN if network in SERVICES[name]["networks"]} == {"orchestrator", "judge"}


@pytest.mark.parametrize("name", ["database", *OWN])
def test_a_container_comes_back_and_keeps_what_it_must(name: str) -> None:
    """Containers restart after a failure, have a health check, end gently, and keep state on named volumes."""
    service = SERVICES[name]
    assert service["restart"] == "unless-stopped"
    assert service["healthcheck"]["test"][0] == "CMD"
    assert seconds(service["stop_grace_period"]) > 10
    for volume, folder, is_writable in mounts(name):
        assert volume in FILE["volumes"]
        assert (
            name not in OWN
            or not is_writable
            or f"--owner=assay {folder}" in dockerfile(OWN[name]).replace("--mode=0700 ", "")
        )
    if name in OWN:
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])


def test_every_variable_is_told_and_no_secret_is_in_the_file() -> None:
    """The head of the file names the variables; secrets have no default."""
    used = {found[0] for found in VARIABLE.findall(LIVE)}
    told = set(re.findall(r"^#   (\w+)  ", TEXT, re.MULTILINE))
    assert used == told
    for name, sign, default in VARIABLE.findall(LIVE):
        assert name in GUIDE
        assert not default or sign == "?" or not re.search("PASSWORD|KEY", name)


def test_only_those_who_ask_a_provider_hold_its_key() -> None:
    """Workers have the keys of prompts, the judge has those of judging, and no other process has any."""
    for name, service in SERVICES.items():
        kind = "JUDGE" if name == "judge" else "AGENT" if name.startswith("worker-") else ""
        held = [key for key in service.get("environment") or {} if key.endswith("_API_KEY")]
        keys = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY") if kind else ()
        assert set(held) == set(keys)
        for key in keys:
            assert f"{key}: ${{{kind}_{key}:-}}" in LIVE


def test_only_what_must_reach_others_has_a_network_that_leads_outside() -> None:
    """The database and the embedder cannot send anything anywhere; ports are published on a network that leads out."""
    open_networks = {name for name, network in FILE["networks"].items() if not (network or {}).get("internal")}
    assert open_networks == {"outside"}
    outside = {name for name, service in SERVICES.items() if open_networks & set(service.get("networks", []))}
    assert outside == set(OWN) - {"embedder"}


def test_every_image_has_an_exact_version() -> None:
    """Neither a moving tag nor none: what is built and started is what was tested."""
    bases = {dockerfile(kind).count("FROM ${PYTHON_IMAGE}") for kind in KINDS}
    assert bases == {2}
    defaults = {re.findall(r"^ARG PYTHON_IMAGE=(\S+)$", dockerfile(kind), re.MULTILINE)[0] for kind in KINDS}
    (python,) = defaults
    assert {service["build"]["args"]["PYTHON_IMAGE"] for service in SERVICES.values() if "build" in service} == defaults
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+", python)
    assert re.fullmatch(r"postgres:\d+\.\d+-\w+", SERVICES["database"]["image"])
    for name, kind in IMAGES.items():
        assert SERVICES[name]["image"] == f"assay-{kind}:{__version__}"
    assert "latest" not in TEXT + "".join(dockerfile(kind) for kind in KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_an_image_installs_only_files_whose_hashes_are_locked(kind: str) -> None:
    """From its own list; the project itself is built without fetching anything, licences and parts are written down."""
    script = (ROOT / "tools/image-environment").read_text(encoding="utf-8")
    for line in re.findall(r'bin/pip" (?:--python \S+ )?(?:install|wheel) (.*)', script):
        assert "--no-index" in line
        assert "--no-deps" in line
    assert 'tools/install-locked "$python" "$image"' in script
    assert 'tools/third_party.py "$folder/THIRD_PARTY.txt"' in script
    assert 'tools/sbom.py "$image"' in script
    assert [step for step, _ in stages(kind)] == ["dependencies", "complete"]


@pytest.mark.parametrize("kind", KINDS)
def test_an_image_is_built_from_files_that_are_there(kind: str) -> None:
    """What each step of the build reads was copied before it, and .dockerignore lets it through."""
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8")
    script = (ROOT / "tools/image-environment").read_text(encoding="utf-8")
    steps = dict(re.findall(r"^  (\w+)\)\n(.*?);;", script, re.DOTALL | re.MULTILINE))
    for step, copied in stages(kind):
        for path in copied:
            assert (ROOT / path).exists()
            assert f"!{path}\n" in ignored or f"!{path.split('/')[0]}\n" in ignored
        assert {"tools/image-environment", *re.findall(r"tools/[\w.-]+", steps[step])} <= copied
        assert {f"requirements/{name}.txt" for name in ("build", "sbom", "cuda", kind)} <= copied
    packages = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert {path.split("/")[0] for path in packages} | {"pyproject.toml", "README.md", "LICENSE"} <= copied


def stages(kind: str) -> list[tuple[str, set[str]]]:
    """Return the steps of an image's build, each with what was copied into it before."""
    found, copied = [], set[str]()
    for line in dockerfile(kind).splitlines():
        if line.startswith("COPY ") and "--from" not in line:
            copied |= set(line.split()[1:-1])
        elif step := re.fullmatch(rf"RUN tools/image-environment (\w+) {kind} /opt/assay", line):
            found.append((step[1], set(copied)))
    return found


def test_the_embedder_has_two_variants() -> None:
    """Of CPU builds and of CUDA's: the argument reaches what installs torch, and Compose hands it on."""
    text = dockerfile("embedder").partition("COPY")[0]
    for name in ("TORCH_BUILD", "PIP_EXTRA_INDEX_URL"):
        assert f'ARG {name}=""\n' in text
        assert SERVICES["embedder"]["build"]["args"][name] in (None, "")
    assert "TORCH_BUILD" in (ROOT / "tools/install-locked").read_text(encoding="utf-8")
    gpu = yaml.safe_load((ROOT / "deploy/overlays/gpu/kustomization.yaml").read_text(encoding="utf-8"))
    assert gpu["images"] == [{"name": "assay-embedder", "newTag": f"{__version__}-cuda"}]


@pytest.mark.parametrize("kind", KINDS)
def test_an_image_holds_what_its_service_needs_and_is_not_root(kind: str) -> None:
    """A user without rights, a probe that can be run, the service as the first process."""
    text = dockerfile(kind)
    assert re.search(r"^USER (\d+)$", text, re.MULTILINE) is not None
    module, address = re.findall(r'^HEALTHCHECK .*"-m", "([\w.]+)", "([\w.:]+)"\]$', text, re.MULTILINE)[0]
    importlib.import_module(module)
    assert f"EXPOSE {port_of(address)}" in text
    assert re.findall(r'^ENTRYPOINT \["python", "-m", "(\w+)"\]$', text, re.MULTILINE) == [f"assay_{kind}"]
