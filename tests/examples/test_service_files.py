"""examples/service: the files for operators are well-formed, and name only what this service has."""

from __future__ import annotations

import configparser
import importlib
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import REPOSITORY

pytest.importorskip("grpc", reason="the extra 'service' is not installed")
pytest.importorskip("yaml", reason="the development extra is not installed")

from service_support import documented

from verilocc_mlir.cli.serve import serve_command
from verilocc_mlir.service.observed import Metrics
from verilocc_mlir.service.pool import PoolCounts
from verilocc_mlir.service.server import ALLOCATION, AUDIT

yaml: Any = importlib.import_module("yaml")
FILES = REPOSITORY / "examples" / "service"
GUIDE = REPOSITORY / "docs" / "guide"
METRIC = re.compile(r"\bverilocc_[a-z_]+\b")
_NO_OPTION = {"--version", "--help"}


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FILES / name).read_text()))


def container() -> tuple[dict[str, Any], dict[str, Any]]:
    """The deployment's pod and its one container."""
    (deployment,) = (d for d in documents("kubernetes.yaml") if d["kind"] == "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    (only,) = pod["containers"]
    return pod, only


def patched() -> dict[str, Any]:
    """What the patch for TLS says of the container."""
    (patch,) = documents("kubernetes-tls.yaml")
    (only,) = patch["spec"]["template"]["spec"]["containers"]
    return only


def series() -> dict[str, set[str]]:
    """Every series that a server exports, with the labels it can have; labels are those of one request of each kind."""
    metrics = Metrics()
    metrics.watch(PoolCounts())
    metrics.requests.labels("Allocate", "OK", "").inc()
    metrics.seconds.labels("Allocate").observe(0.1)
    metrics.cpu_seconds.labels("Allocate").inc()
    metrics.functions.labels("Allocate", "proved", "").inc()
    metrics.attempts.labels("deterministic", "prove").inc()
    samples = [sample for family in metrics.registry.collect() for sample in family.samples]
    return {sample.name: set(sample.labels) for sample in samples}


def parsed(arguments: list[str]) -> dict[str, Any]:
    """What ``verilocc serve`` makes of them; a ``UsageError`` for an option that is not there."""
    return serve_command.make_context("serve", list(arguments)).params


def commands() -> Iterator[tuple[str, list[str]]]:
    """Every ``verilocc serve`` in the files."""
    unit = (FILES / "verilocc.service").read_text()
    (start,) = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    words = shlex.split(start)
    assert words[1] == "serve"
    yield "unit", [word for word in words[2:] if word != "$VERILOCC_OPTIONS"]
    yield "kubernetes", container()[1]["args"]
    yield "kubernetes with TLS", patched()["args"]
    image = (FILES / "Containerfile").read_text()
    (entry,), (given,) = (re.findall(rf"^{word} (\[.*\])$", image, re.MULTILINE) for word in ("ENTRYPOINT", "CMD"))
    assert yaml.safe_load(entry) == ["verilocc", "serve"]
    yield "image", yaml.safe_load(given)
    (run,) = re.findall(r"^#   podman run(.*\\\n#.*)$", image, re.MULTILINE)
    yield "podman run", run.replace("\\\n#", " ").partition(" verilocc ")[2].split()


@pytest.mark.parametrize(("where", "arguments"), list(commands()), ids=lambda value: value if value is str else None)
def test_the_commands_are_ones_that_serve_takes(where: str, arguments: list[str]) -> None:
    assert parsed(arguments)["addresses"], where


def test_options_that_comments_and_pages_name_are_there() -> None:
    options = {name for parameter in serve_command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    foreign = {"--read-only", "--cap-drop", "--memory", "--cpus", "--constraint", "--no-cache-dir", "--system", "--uid"}
    foreign |= {
        "--cert",
        "--key",
        "--patch-file",
        "--home-dir",
        "--create-home",
        "--rm",
        "--now",
        "--from-file",
        "--server",
        "--out",
        "--grpc-port",
        "--grpc-servicer-functions",
    } | _NO_OPTION
    for path in (*(f for f in FILES.iterdir() if f.is_file() and f.suffix != ".py"), GUIDE / "service-operate.md"):
        words = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", path.read_text()))
        assert words - options - foreign == set(), path.name


def test_the_alerts_ask_for_series_labels_and_reasons_that_there_are() -> None:
    (document,) = documents("prometheus-rules.yaml")
    exported = series()
    reasons = {reason for row in documented().values() for reason in row}
    for rule in document["groups"][0]["rules"]:
        assert {"alert", "expr", "labels", "annotations"} <= set(rule)
        assert {"summary", "what"} <= set(rule["annotations"])
        text = rule["expr"] + str(rule["annotations"])
        assert set(METRIC.findall(text)) <= set(exported), rule["alert"]
        for name, selector in re.findall(r"(verilocc_[a-z_]+)\{([^}]*)\}", rule["expr"]):
            for label, value in re.findall(r'(\w+)(?:=|!=|=~|!~)"([^"]*)"', selector):
                assert label in exported[name], rule["alert"]
                if label == "reason":
                    assert set(value.split("|")) <= reasons, rule["alert"]
                if label == "code":
                    assert set(value.split("|")) <= set(documented()), rule["alert"]
    names = [rule["alert"] for rule in document["groups"][0]["rules"]]
    assert len(set(names)) == len(names)


def test_what_grows_ends_in_total() -> None:
    metrics = Metrics()
    metrics.watch(PoolCounts())
    for family in metrics.registry.collect():
        for sample in family.samples:
            assert (family.type == "counter") == sample.name.endswith(("_total", "_created")), sample.name


def test_metrics_that_the_pages_name_are_there() -> None:
    exported = {*series(), "verilocc_mlir"}
    for page in GUIDE.glob("service*.md"):
        spans = re.findall(r"`(verilocc_[a-z_]+)`", page.read_text())
        assert set(spans) <= exported, page.name


def test_the_pods_probes_ask_what_is_there_and_outlive_a_drain() -> None:
    pod, only = container()
    ports = {port["containerPort"] for port in only["ports"]}
    arguments = parsed(only["args"])
    listened = {int(a.rpartition(":")[2]) for a in (*arguments["addresses"], arguments["metrics"])}
    assert ports == listened
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert only[probe]["grpc"]["port"] in ports
        assert only[probe]["grpc"].get("service", "") in ("", ALLOCATION, AUDIT)
    pause = int(only["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["terminationGracePeriodSeconds"] > pause + arguments["drain_seconds"]
    dead = only["livenessProbe"]["periodSeconds"] * only["livenessProbe"]["failureThreshold"]
    assert dead > arguments["drain_seconds"]
    mounted = {mount["mountPath"] for mount in only["volumeMounts"]}
    assert str(Path(arguments["tokens"]).parent) in mounted
    names = {volume["name"] for volume in pod["volumes"]}
    assert {mount["name"] for mount in only["volumeMounts"]} == names


def test_the_patch_for_tls_replaces_every_probe_and_keeps_the_other_options() -> None:
    only, before = patched(), container()[1]
    probes = [name for name in before if name.endswith("Probe")]
    assert probes == [name for name in only if name.endswith("Probe")]
    (port,) = only["ports"]
    arguments = parsed(only["args"])
    assert arguments["http"].endswith(f":{port['containerPort']}")
    for probe in probes:
        assert only[probe]["grpc"] is None
        assert only[probe]["httpGet"] == {"path": "/healthz", "port": port["name"], "scheme": "HTTPS"}
    (mount,) = only["volumeMounts"]
    assert str(arguments["tls_cert"]).startswith(mount["mountPath"])
    assert set(before["args"]) - set(only["args"]) == {"--insecure"}


def test_the_clusters_objects_belong_together() -> None:
    objects = {d["kind"]: d for d in documents("kubernetes.yaml")}
    labels = objects["Deployment"]["spec"]["template"]["metadata"]["labels"]
    named = {port["name"] for port in container()[1]["ports"]}
    assert objects["Service"]["spec"]["selector"].items() <= labels.items()
    assert {port["targetPort"] for port in objects["Service"]["spec"]["ports"]} <= named
    for kind, field in (("PodDisruptionBudget", "selector"), ("NetworkPolicy", "podSelector")):
        assert objects[kind]["spec"][field]["matchLabels"].items() <= labels.items()
    assert {p["port"] for rule in objects["NetworkPolicy"]["spec"]["ingress"] for p in rule["ports"]} <= named


def test_the_unit_stops_later_than_the_server_drains() -> None:
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # pyright: ignore[reportAttributeAccessIssue]
    unit.read(FILES / "verilocc.service")
    service = unit["Service"]
    drain = parsed(dict(commands())["unit"])["drain_seconds"]
    assert float(service["TimeoutStopSec"]) > drain
    assert service["KillMode"] == "mixed"
    (socket,) = (a for a in parsed(dict(commands())["unit"])["addresses"] if a.startswith("unix:"))
    assert socket.startswith(f"unix:/run/{service['RuntimeDirectory']}/")


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    """The program and its user are not here; nothing else may be wrong."""
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("systemd-analyze is not here")
    unit = (FILES / "verilocc.service").read_text().replace("/opt/verilocc/bin/verilocc", "/bin/true")
    (tmp_path / "verilocc.service").write_text(unit)
    done = subprocess.run(
        [tool, "verify", "--man=no", str(tmp_path / "verilocc.service")], capture_output=True, text=True, check=False
    )
    about_it = [line for line in (done.stdout + done.stderr).splitlines() if "verilocc" in line]
    assert about_it == []


def test_the_client_of_kubernetes_takes_the_file() -> None:
    """Parsed without a cluster, where there is a kubectl."""
    tool = shutil.which("kubectl")
    if tool is None:
        pytest.skip("kubectl is not here")
    done = subprocess.run(
        [tool, "create", "--dry-run=client", "--validate=false", "-f", str(FILES / "kubernetes.yaml")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "refused" in done.stderr or "dial tcp" in done.stderr:
        pytest.skip("this kubectl wants a cluster")
    assert done.returncode == 0, done.stderr


def test_the_image_takes_what_a_build_leaves() -> None:
    image = (FILES / "Containerfile").read_text()
    (copied,) = re.findall(r"^COPY (.*) /install/$", image, re.MULTILINE)
    wheel, constraints = copied.split()
    assert wheel == "dist/verilocc_mlir-*.whl"
    assert (REPOSITORY / constraints).exists()
    exposed = set(re.findall(r"^EXPOSE (.*)$", image, re.MULTILINE)[0].split())
    assert exposed == {str(port["containerPort"]) for port in container()[1]["ports"]}
