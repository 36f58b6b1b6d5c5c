"""The manifests of deploy/: what they give a process is what the services take, and nothing has more than it needs."""

from __future__ import annotations

import sqlite3
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from assay_embedder.settings import Settings as Embedder
from assay_judge.settings import Settings as Judge
from assay_orchestrator.identity import bootstrap
from assay_orchestrator.settings import Settings as Orchestrator
from assay_orchestrator.store.schema import metadata as tables

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
KINDS = {"assay-embedder": Embedder.read, "assay-judge": Judge.read, "assay-orchestrator": Orchestrator.read}


def documents(*folders: str) -> list[dict[str, Any]]:
    """Return all manifests of some folders except those of kustomize itself."""
    files = [path for folder in folders for path in sorted((DEPLOY / folder).glob("*.yaml"))]
    manifests = [manifest for path in files for manifest in yaml.safe_load_all(path.read_text(encoding="utf-8"))]
    return [manifest for manifest in manifests if not manifest["apiVersion"].startswith("kustomize")]


BASE = documents("base")
ALL = documents("base", "overlays/cpu", "overlays/gpu", "overlays/dev", "components/queue-depth", "components/gateway")
WORKLOADS = {
    manifest["metadata"]["name"]: manifest
    for manifest in ALL
    if manifest["kind"] in ("Deployment", "StatefulSet", "Job")
}
OWN = {name: manifest for name, manifest in WORKLOADS.items() if manifest["kind"] == "Deployment"}
"""What serves."""
POLICIES = {manifest["metadata"]["name"]: manifest["spec"] for manifest in ALL if manifest["kind"] == "NetworkPolicy"}
GENERATED = {
    entry["name"]: dict(pair.split("=", 1) for pair in entry["literals"])
    for entry in yaml.safe_load((DEPLOY / "base/kustomization.yaml").read_text(encoding="utf-8"))["configMapGenerator"]
}


def specs(kind: str) -> dict[str, Any]:
    """Return the specifications of one kind in the base, by name."""
    return {manifest["metadata"]["name"]: manifest["spec"] for manifest in BASE if manifest["kind"] == kind}


def pod(name: str) -> dict[str, Any]:
    """Return the specification of a workload's pods."""
    spec: dict[str, Any] = WORKLOADS[name]["spec"]["template"]["spec"]
    return spec


def container(name: str) -> dict[str, Any]:
    """Return the one container of a workload."""
    (only,) = pod(name)["containers"]
    spec: dict[str, Any] = only
    return spec


def settings(name: str, arguments: list[str] | None = None) -> Any:
    """Return the settings of a process from its command line, its config map and its secrets."""
    mine = container(name)
    generated = [GENERATED[each["configMapRef"]["name"]] for each in mine["envFrom"]]
    environment = {key: value for each in generated for key, value in each.items()}
    secrets = {each["name"] for each in mine.get("env", []) if "secretKeyRef" in each.get("valueFrom", {})}
    if "ASSAY_DATABASE_URL" in secrets:
        environment["ASSAY_DATABASE_URL"] = "postgresql://assay@database/assay"
    return KINDS[mine["image"]](mine["args"] if arguments is None else arguments, environment)


def dev_arguments(name: str) -> list[str]:
    """Return a process's command line in the development overlay."""
    patches = yaml.safe_load((DEPLOY / "overlays/dev/kustomization.yaml").read_text(encoding="utf-8"))["patches"]
    (changes,) = (yaml.safe_load(patch["patch"]) for patch in patches if patch["target"]["name"] == name)
    values: dict[str, list[str]] = {change["path"]: change["value"] for change in changes}
    return values["/spec/template/spec/containers/0/args"]


@pytest.mark.parametrize("name", OWN)
def test_every_command_line_is_one_that_the_service_takes(name: str) -> None:
    """A renamed flag is detected; probes, ports and end times fit the settings."""
    service, mine = settings(name), container(name)
    ports = {each["name"]: str(each["containerPort"]) for each in mine["ports"]}
    assert (service.listen, service.health_listen) == (f"0.0.0.0:{ports['grpc']}", f"0.0.0.0:{ports['health']}")
    for probe in ("startupProbe", "readinessProbe"):
        assert str(mine[probe]["grpc"]["port"]) == ports["health"]
    assert pod(name)["terminationGracePeriodSeconds"] >= service.grace_s + 10
    files = [each for each in (service.tls_cert, service.tls_key, service.tls_client_ca) if each is not None]
    mounts = [each["mountPath"] for each in mine["volumeMounts"]]
    assert all(any(str(file).startswith(f"{mount}/") for mount in mounts) for file in files)
    assert {each["name"] for each in mine["volumeMounts"]} == {each["name"] for each in pod(name)["volumes"]}
    assert settings(name, dev_arguments(name)).listen == service.listen


def test_what_serves_others_has_tls_and_knows_its_callers() -> None:
    """Teams have tokens, services certificates; a worker serves health alone."""
    api, worker = settings("api"), settings("worker")
    assert (api.role, api.auth, api.server_tls is not None) == ("api", "tokens", True)
    assert worker.role == "worker"
    for name in ("embedder", "judge"):
        assert settings(name).tls_client_ca is not None
        assert not settings(name).insecure
    for client in (api, worker):
        assert client.services_tls is not None
        assert [client.embedder, client.judge] == [
            f"dns:///{name}:{settings(name).listen.rpartition(':')[2]}" for name in ("embedder", "judge")
        ]


@pytest.mark.parametrize("name", WORKLOADS)
def test_pods_are_restricted(name: str) -> None:
    """Pods meet the Pod Security level `restricted` and have a read-only root file system."""
    spec, mine = pod(name), container(name)
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["runAsUser"] >= 100
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert mine["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}
    }  # fmt: skip
    assert spec["automountServiceAccountToken"] is False
    assert spec["serviceAccountName"] == "assay"
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    assert all({"hostPath", "projected"}.isdisjoint(each) for each in spec["volumes"])
    assert "memory" in mine["resources"]["limits"]
    assert {"cpu", "memory"} <= set(mine["resources"]["requests"])
    assert ({"readinessProbe", "livenessProbe"} <= set(mine)) is (name != "migrate")


def test_no_image_is_named_latest_and_no_secret_is_in_the_base() -> None:
    """Secrets are references; images have a version, from the base's kustomization or in place."""
    base = yaml.safe_load((DEPLOY / "base/kustomization.yaml").read_text(encoding="utf-8"))
    tags = {each["name"]: each["newTag"] for each in base["images"]}
    for name in WORKLOADS:
        image = container(name)["image"]
        tag = tags.get(image) or image.rpartition(":")[2]
        assert tag
        assert tag != "latest"
    assert not [manifest for manifest in BASE if manifest["kind"] == "Secret"]
    for name in OWN:
        assert all("secretKeyRef" in each["valueFrom"] for each in container(name).get("env", []))
    keys = {name for name in OWN if "OPENAI_API_KEY" in str(container(name).get("env"))}
    assert keys == {"worker", "judge"}


def test_traffic_is_denied_both_ways_unless_it_is_listed() -> None:
    """Only clients' calls come from outside; the embedder reaches nothing, and the metadata of clouds no pod."""
    assert POLICIES["default-deny"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    assert set(POLICIES) == {"default-deny", *WORKLOADS}
    open_to_all = {
        name for name, policy in POLICIES.items() for rule in policy.get("ingress", []) if not rule.get("from")
    }
    assert open_to_all == {"api"}
    assert "egress" not in POLICIES["embedder"]
    blocks = [
        peer["ipBlock"]
        for policy in POLICIES.values()
        for rule in policy.get("egress", [])
        for peer in rule.get("to", [])
        if "ipBlock" in peer
    ]
    assert len(blocks) == 4  # of worker and judge, for both families
    (to_database,) = (rule for rule in POLICIES["database"]["ingress"])
    users = {peer["podSelector"]["matchLabels"]["app.kubernetes.io/name"] for peer in to_database["from"]}
    with_url = {name for name in WORKLOADS if "ASSAY_DATABASE_URL" in str(container(name).get("env"))}
    assert users == with_url == {"api", "worker", "judge", "migrate"}
    port = {"ports": [{"port": 5432, "protocol": "TCP"}]}
    assert {name for name, policy in POLICIES.items() if port in policy.get("egress", [])} == users
    for block in blocks:
        assert block["except"]
        assert ":" in block["cidr"] or {"168.63.129.16/32", "169.254.0.0/16"} <= set(block["except"])
    for name in ("embedder", "judge"):
        (rule,) = POLICIES[name]["ingress"]
        assert [peer["podSelector"]["matchLabels"] for peer in rule["from"]] == [
            {"app.kubernetes.io/name": caller} for caller in ("api", "worker")
        ]


def test_every_process_may_be_moved_one_at_a_time() -> None:
    """Each has two replicas, a disruption budget and a spread over nodes; none ends before another is there."""
    budgets = specs("PodDisruptionBudget")
    assert set(budgets) == set(OWN)
    for name, workload in OWN.items():
        assert workload["spec"]["replicas"] == 2
        assert workload["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
        assert pod(name)["topologySpreadConstraints"]
        assert budgets[name]["maxUnavailable"] == 1
        labels = workload["spec"]["selector"]["matchLabels"]
        assert budgets[name]["selector"]["matchLabels"] == labels
        assert labels.items() <= workload["spec"]["template"]["metadata"]["labels"].items()


def test_one_job_changes_the_tables_and_all_others_wait_for_it() -> None:
    """One job migrates, however many pods start; it is retried while pods of an older version use the tables."""
    job = WORKLOADS["migrate"]
    assert job["kind"] == "Job"
    python, flag, module = container("migrate")["command"]
    assert (python, flag, find_spec(module) is not None) == ("python", "-m", True)
    assert pod("migrate")["restartPolicy"] == "OnFailure"
    assert job["spec"]["backoffLimit"] >= 6  # the pauses double from 10 s, so that this is at least ten minutes
    for name in ("api", "worker"):
        for service in (settings(name), settings(name, dev_arguments(name))):
            assert service.migrations == "wait"
        probe = container(name)["startupProbe"]
        assert probe["periodSeconds"] * probe["failureThreshold"] > service.database_patience_s + 30


def test_the_gateway_passes_tls_on_to_the_service() -> None:
    """The certificate is in the pods, so clients' data is encrypted up to the pod."""
    gateway, route = (manifest["spec"] for manifest in ALL if manifest["apiVersion"].startswith("gateway."))
    (listener,), (rule,), (parent,) = gateway["listeners"], route["rules"], route["parentRefs"]
    assert (listener["protocol"], listener["tls"]) == ("TLS", {"mode": "Passthrough"})
    assert parent == {"name": "assay", "sectionName": listener["name"]}
    assert route["hostnames"] == [listener["hostname"]]
    ports = {each["port"] for each in specs("Service")["assay"]["ports"]}
    assert [(each["name"], each["port"] in ports) for each in rule["backendRefs"]] == [("assay", True)]


def test_the_scaler_of_the_queue_fits_the_workers() -> None:
    """The scaler of the queue has the secret of the database, and replaces the autoscaler of the same Deployment."""
    name = "worker"
    (scaled,) = (manifest["spec"] for manifest in ALL if manifest["kind"] == "ScaledObject")
    (known,) = (manifest for manifest in ALL if manifest["kind"] == "TriggerAuthentication")
    (trigger,) = scaled["triggers"]
    assert scaled["scaleTargetRef"]["name"] == name in OWN
    assert trigger["authenticationRef"]["name"] == known["metadata"]["name"]
    (reference,) = known["spec"]["secretTargetRef"]
    (url,) = (each for each in container(name)["env"] if each["name"] == "ASSAY_DATABASE_URL")
    assert {key: reference[key] for key in ("name", "key")} == url["valueFrom"]["secretKeyRef"]
    component = yaml.safe_load((DEPLOY / "components/queue-depth/kustomization.yaml").read_text(encoding="utf-8"))
    assert [each["target"] for each in component["patches"]] == [{"kind": "HorizontalPodAutoscaler", "name": name}]
    targets = {
        manifest["spec"]["scaleTargetRef"]["name"] for manifest in ALL if manifest["kind"] == "HorizontalPodAutoscaler"
    }
    assert targets == set(OWN) - {"judge"}  # it waits for providers, and computes nothing


def test_clients_of_services_balance_over_pods() -> None:
    """A cluster IP pins a gRPC client to one pod: the services that Assay calls are headless."""
    services = specs("Service")
    assert {name for name, spec in services.items() if spec.get("clusterIP") == "None"} == {"embedder", "judge"}
    assert set(services) == {"embedder", "judge", "assay"}
    for spec in services.values():
        assert [each["targetPort"] for each in spec["ports"]] == ["grpc"]  # and never the port of health


def test_the_depth_of_the_queue_can_be_asked_for() -> None:
    """The scaler's query counts the waiting shards of active runs in the current tables."""
    (scaled,) = (manifest for manifest in ALL if manifest["kind"] == "ScaledObject")
    (trigger,) = scaled["spec"]["triggers"]
    with sqlite3.connect(":memory:") as database:
        for name in ("runs", "shards"):
            columns = ", ".join(column.name for column in tables.tables[name].columns)
            database.execute(f"CREATE TABLE {name} ({columns})")
        runs = [("a", "running", ""), ("b", "running", "owner"), ("c", "paused", "owner"), ("d", "pending", "")]
        database.executemany("INSERT INTO runs (run_id, state, pause_cause) VALUES (?, ?, ?)", runs)
        shards = [(run, state) for run in "abcd" for state in ("waiting", "waiting", "taken")]
        database.executemany("INSERT INTO shards (run_id, state) VALUES (?, ?)", shards)
        assert database.execute(trigger["metadata"]["query"]).fetchone() == (4,)


def test_the_first_token_can_be_made_in_a_pod(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The guide's command works in the image's environment, which listens on all addresses."""
    environment = {"ASSAY_ORCHESTRATOR_LISTEN": "0.0.0.0:7070"}
    assert bootstrap.main(["--database", str(tmp_path / "assay.db")], environment) == 0
    assert capsys.readouterr().out.startswith("assay_")
    assert f"python -m {bootstrap.__name__}" in (ROOT / "docs/kubernetes.md").read_text(encoding="utf-8")
