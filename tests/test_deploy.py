"""The deployment files agree with the code: nothing can be run here, so names and references are checked."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.settings import GatewaySettings
from worker.settings import WorkerSettings

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
OF_BOTH = {"NG_CACHE_DIR", "NG_CONFIG_DIR"}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return loaded


def names_of_gateway() -> set[str]:
    return {f"NG_{name.upper()}" for name in GatewaySettings.model_fields}


def names_of_worker() -> set[str]:
    own = {f"NG_WORKER_{name.upper()}" for name in WorkerSettings.model_fields}
    aliases = {
        str(choice)
        for field in WorkerSettings.model_fields.values()
        for choice in getattr(field.validation_alias, "choices", ())
        if str(choice).startswith("NG_")
    }
    return own | aliases


def test_every_environment_name_is_a_setting_of_its_process(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert set(services["gateway"]["environment"]) <= names_of_gateway() | OF_BOTH
    assert set(services["worker"]["environment"]) <= names_of_worker() | OF_BOTH


def test_the_values_are_valid_settings(compose: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    services = compose["services"]
    for name, value in services["gateway"]["environment"].items():
        if not name.endswith("_FILE"):  # the secret's path exists in the container alone
            monkeypatch.setenv(name, value)
    assert GatewaySettings().workers == ("http://worker:8081",)
    for name, value in services["worker"]["environment"].items():
        monkeypatch.setenv(name, value)
    assert WorkerSettings().port == 8081


def test_addresses_name_services_and_their_ports(compose: dict[str, Any]) -> None:
    services = compose["services"]
    gateway, worker = services["gateway"]["environment"], services["worker"]["environment"]
    assert gateway["NG_WORKERS"] == f"http://worker:{worker['NG_WORKER_PORT']}"
    assert gateway["NG_REDIS_URL"] == worker["NG_REDIS_URL"] == "redis://valkey:6379/0"
    assert services["gateway"]["ports"] == [f"127.0.0.1:8080:{gateway['NG_PORT']}"]
    for service in services.values():
        assert set(service.get("depends_on", ())) <= services.keys()
        assert set(service.get("secrets", ())) <= compose["secrets"].keys()


def test_prometheus_scrapes_both_processes(compose: dict[str, Any]) -> None:
    config = yaml.safe_load((DEPLOY / "prometheus.yaml").read_text())
    targets = {
        target
        for job in config["scrape_configs"]
        for static in job["static_configs"]
        for target in static["targets"]
    }
    environment = {name: compose["services"][name]["environment"] for name in ("gateway", "worker")}
    assert targets == {
        f"gateway:{environment['gateway']['NG_PORT']}",
        f"worker:{environment['worker']['NG_WORKER_PORT']}",
    }
    mounted = {
        volume.split(":")[1]: volume.split(":")[0] for volume in compose["services"]["prometheus"]["volumes"]
    }
    assert mounted["/etc/prometheus/prometheus.yml"] == "./prometheus.yaml"
    assert [Path(mounted[path]).name for path in config["rule_files"]] == ["alerts.yaml"]


def test_every_container_is_hardened_and_says_whether_it_is_well(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert int(service["user"].partition(":")[0]) > 0, name
        assert service["healthcheck"]["test"][0] == "CMD", name
        assert not {"privileged", "network_mode", "pid", "cap_add"} & service.keys(), name
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    assert re.findall(r"^USER (\S+)$", dockerfile, re.M) == [compose["services"]["gateway"]["user"]]


def test_what_is_mounted_exists_and_what_is_written_lies_on_a_volume(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        for volume in service.get("volumes", ()):
            source, _, mode = volume.partition(":")
            if source.startswith("."):
                assert (DEPLOY / source).exists(), source
                assert mode.endswith(":ro"), volume
            else:
                assert source in compose["volumes"]
    for name, setting in (("gateway", "NG_STATE_DIR"), ("worker", "NG_WORKER_SPILL_DIR")):
        service = compose["services"][name]
        targets = [volume.split(":")[1] for volume in service["volumes"] if not volume.endswith(":ro")]
        assert any(service["environment"][setting].startswith(target) for target in targets), name


def test_only_the_loopback_address_sees_a_port_and_the_inner_network_none(compose: dict[str, Any]) -> None:
    assert compose["networks"]["back"]["internal"] is True
    for name, service in compose["services"].items():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ())), name
    assert compose["services"]["worker"]["networks"] == compose["services"]["valkey"]["networks"] == ["back"]
    assert not any("ports" in compose["services"][name] for name in ("worker", "valkey"))


def test_the_gateway_of_the_deployment_asks_everybody_for_a_key(compose: dict[str, Any]) -> None:
    environment = compose["services"]["gateway"]["environment"]
    assert environment["NG_KEYLESS"] == "nobody"
    assert environment["NG_ADMIN_KEY_FILE"].startswith("/run/secrets/")
    assert not [name for name in environment if name.endswith("_KEY")]


def test_the_image_copies_what_exists_and_runs_a_module_that_exists(compose: dict[str, Any]) -> None:
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    copied = [line.split()[1:-1] for line in dockerfile.splitlines() if line.startswith("COPY ")]
    sources = [names for names in copied if not names[0].startswith("--from=")]
    assert sources
    stages = set(re.findall(r"^FROM \S+ AS (\S+)$", dockerfile, re.M))
    assert {names[0].removeprefix("--from=") for names in copied if names not in sources} == stages
    for source in (name for names in sources for name in names):
        assert (ROOT / source).exists(), source
    commands = [compose["services"][name]["command"] for name in ("gateway", "worker")]
    for command in (*commands, yaml.safe_load(re.findall(r"^CMD (.+)$", dockerfile, re.M)[0])):
        assert command[:2] == ["python", "-m"]
        assert (ROOT / command[2] / "__main__.py").is_file()
    for name in re.findall(r"\bNG_[A-Z_]+(?==)", dockerfile):
        assert name in names_of_gateway() | names_of_worker() | OF_BOTH


def test_the_secrets_file_stays_out_of_the_repository(compose: dict[str, Any]) -> None:
    for secret in compose["secrets"].values():
        assert f"deploy/{Path(secret['file']).name}" in (ROOT / ".gitignore").read_text().splitlines()
