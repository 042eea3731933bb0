"""What a newcomer runs first: Makefile, prerequisites, jars, lock, compose file and pages."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
MAKE = shutil.which("make")


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def make_targets() -> set[str]:
    return set(re.findall(r"^([.a-z][a-z-]*):(?!=)", text_of("Makefile"), flags=re.MULTILINE))


# --- prerequisites -----------------------------------------------------------------------------------------------


def machine(folder: Path, *, java: str | None = None, python: bool = True) -> dict[str, str]:
    """An environment whose PATH holds a shell's basic tools, and only the given Java and Python."""
    tools = folder / "bin"
    tools.mkdir()
    for tool in ("sh", "make", "sed", "uname"):
        found = shutil.which(tool)
        assert found
        (tools / tool).symlink_to(found)
    if python:
        # A wrapper, not a link: an interpreter finds its library by the path it was started from.
        (tools / "python3.11").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        (tools / "python3.11").chmod(0o755)
        # A uv that answers, so that only Java and Python are in question.
        (tools / "uv").write_text("#!/bin/sh\nexit 0\n")
        (tools / "uv").chmod(0o755)
    if java:
        (tools / "java").write_text(f"#!/bin/sh\necho 'openjdk version \"{java}\" 2024-01-01' >&2\n")
        (tools / "java").chmod(0o755)
    return {"PATH": str(tools)}


def run_make(target: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    assert MAKE, "these tests run make"
    return subprocess.run([MAKE, target], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("target", ["demo", "ui", "test", "test-long", "bench-extract", "bench-publish", "jars"])
def test_every_target_that_needs_java_first_says_that_it_is_missing(target: str, tmp_path: Path) -> None:
    done = run_make(target, machine(tmp_path))
    assert done.returncode != 0
    assert "missing: Java 17 or newer" in done.stdout
    assert "apt-get install openjdk-17-jre-headless" in done.stdout
    assert "environment:" not in done.stdout, "set-up began although Java is missing"


@pytest.mark.parametrize(("version", "sound"), [("1.8.0_402", False), ("16", False), ("17", True), ("25-ea", True)])
def test_a_java_that_is_too_old_is_named(version: str, sound: bool, tmp_path: Path) -> None:
    done = run_make("prerequisites", machine(tmp_path, java=version))
    assert (done.returncode == 0) == sound
    assert ("missing: Java 17 or newer (java is too old)" in done.stdout) == (not sound)


def test_java_home_goes_before_the_path(tmp_path: Path) -> None:
    environment = machine(tmp_path, java="17.0.15") | {"JAVA_HOME": str(tmp_path / "gone")}
    done = run_make("prerequisites", environment)
    assert done.returncode != 0
    assert f"JAVA_HOME is {tmp_path / 'gone'}" in done.stdout


def test_all_that_is_missing_is_said_at_once(tmp_path: Path) -> None:
    done = run_make("test", machine(tmp_path, python=False))
    assert done.returncode != 0
    assert "missing: Python 3.11 or 3.12" in done.stdout
    assert "apt-get install python3.11 python3.11-venv" in done.stdout
    assert "missing: Java 17 or newer" in done.stdout


# --- make --------------------------------------------------------------------------------------------------------


def test_make_alone_lists_every_target_with_what_it_does() -> None:
    assert MAKE
    listing = subprocess.run([MAKE], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    listed = set(re.findall(r"^  make (\S+) +\S", listing, flags=re.MULTILINE))
    assert listed == make_targets() - {".PHONY", "uv"}


def test_pages_name_only_targets_that_exist() -> None:
    pages = [page for folder in (".", ".github", "docs", "jars") for page in (ROOT / folder).glob("*.md")]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    fenced = "\n".join(re.findall(r"^```.*?^```", text, flags=re.MULTILINE | re.DOTALL))
    named = {*re.findall(r"`make ([.a-z][a-z-]*)", text), *re.findall(r"^make ([.a-z-]+)", fenced, flags=re.MULTILINE)}
    assert {"demo", "test"} <= named
    assert named <= make_targets()


def workflow_commands() -> list[tuple[str, str]]:
    """Every line that a workflow runs, with the workflow's name; `.ci/run` is one more."""
    found = [(".ci/run", line) for line in re.findall(r"^exec (.+)$", text_of(".ci/run"), flags=re.MULTILINE)]
    for path in sorted((ROOT / ".github" / "workflows").glob("*.yml")):
        for job in yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].values():
            commands = [step["run"] for step in job["steps"] if "run" in step]
            lines = [line for command in commands for line in command.splitlines()]
            found += [(path.name, re.sub(r"\$\{\{.*?\}\}", "", line)) for line in lines]
    return found


def test_continuous_integration_only_calls_targets_that_exist() -> None:
    """What fails there can be repeated here: no step has commands of its own."""
    commands = workflow_commands()
    targets = [(place, re.fullmatch(r"make ([a-z-]+)(?: [A-Z]+=\S+)*", line)) for place, line in commands]
    assert [place for place, found in targets if found is None] == []
    assert {found.group(1) for _, found in targets if found} <= make_targets()
    assert (".ci/run", "make test") in commands and os.access(ROOT / ".ci/run", os.X_OK)


def test_continuous_integration_may_only_read_the_repository() -> None:
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        assert yaml.safe_load(path.read_text(encoding="utf-8"))["permissions"] == {"contents": "read"}


def test_pre_commit_runs_local_hooks_only() -> None:
    repositories = yaml.safe_load(text_of(".pre-commit-config.yaml"))["repos"]
    assert [r["repo"] for r in repositories] == ["local"]
    assert {hook["language"] for hook in repositories[0]["hooks"]} == {"system"}, "another language is downloaded"


# --- what is pinned ----------------------------------------------------------------------------------------------


def locked() -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text_of("requirements.lock"), flags=re.MULTILINE))


def test_the_lock_has_hashes_and_no_address() -> None:
    text = text_of("requirements.lock")
    assert not re.search(r"https?:|^-", text, flags=re.MULTILINE)
    blocks = re.split(r"\n(?=[a-z0-9])", text.strip())
    assert len(blocks) > 100 and set(locked()) == {re.split("==", block)[0] for block in blocks}
    assert [block.splitlines()[0] for block in blocks if "--hash=sha256:" not in block] == []


def test_versions_that_must_agree_agree() -> None:
    """AF-01: pyspark and pyspark-client write the same files; the Delta jar of tests belongs to Spark."""
    lock = locked()
    assert lock["pyspark"] == lock["pyspark-client"]
    delta = next(j for j in jars_wanted() if j.startswith("delta-spark"))
    spark_line = lock["pyspark"].rsplit(".", 1)[0]
    assert delta.startswith(f"delta-spark_{spark_line}_2.13-")


def jars_wanted() -> list[str]:
    dependencies = ElementTree.fromstring(text_of("jars/ivy.xml")).iter("dependency")
    return sorted(f"{d.attrib['name']}-{d.attrib['rev']}.jar" for d in dependencies)


def test_every_jar_is_pinned_by_its_sum_and_brings_nothing_along() -> None:
    pinned = re.findall(r"^([0-9a-f]{64})  (\S+)$", text_of("jars/SHA256SUMS"), flags=re.MULTILINE)
    assert sorted(name for _, name in pinned) == jars_wanted()
    assert len({digest for digest, _ in pinned}) == len(pinned)
    dependencies = ElementTree.fromstring(text_of("jars/ivy.xml")).iter("dependency")
    assert {d.attrib["transitive"] for d in dependencies} == {"false"}


def test_the_brokers_jars_are_pinned_and_apart_from_sparks() -> None:
    pinned = re.findall(r"^([0-9a-f]{64})  (\S+\.jar)$", text_of("jars/broker/SHA256SUMS"), flags=re.MULTILINE)
    names = {name for _, name in pinned}
    direct = ElementTree.fromstring(text_of("jars/broker/ivy.xml")).iter("dependency")
    assert {f"{d.attrib['name']}-{d.attrib['rev']}.jar" for d in direct} <= names
    assert len(names) == len(pinned) == len(text_of("jars/broker/SHA256SUMS").splitlines())
    assert not names & set(jars_wanted())


def test_azurite_and_all_that_it_brings_is_pinned_by_sums_and_by_no_address() -> None:
    wanted = json.loads(text_of("tests/azurite/package.json"))["dependencies"]
    packages = json.loads(text_of("tests/azurite/package-lock.json"))["packages"]
    assert packages.pop("")["dependencies"] == wanted
    assert packages["node_modules/azurite"]["version"] == wanted["azurite"]
    assert [name for name, one in packages.items() if "integrity" not in one or "resolved" in one] == []


def jars_folder(folder: Path) -> Path:
    """A copy of jars/ with one jar of our own, whose sum is pinned; nothing can be fetched."""
    place = folder / "jars"
    place.mkdir()
    shutil.copy(ROOT / "jars" / "fetch", place)
    (place / "a-1.jar").write_bytes(b"one")
    # sha256 of b"one"
    (place / "SHA256SUMS").write_text("7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed  a-1.jar\n")
    return place


def fetch(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # /bin/false stands for the interpreter: whoever gets as far as fetching fails at once.
    return subprocess.run([place / "fetch", "false", *arguments], capture_output=True, text=True, timeout=300)


def test_jars_that_match_their_sums_are_not_fetched_again(tmp_path: Path) -> None:
    done = fetch(jars_folder(tmp_path))
    assert done.returncode == 0
    assert "all there" in done.stdout


def test_a_folder_below_is_fetched_by_its_own_sums(tmp_path: Path) -> None:
    place = jars_folder(tmp_path)
    (place / "broker").mkdir()
    shutil.move(place / "a-1.jar", place / "broker")
    shutil.move(place / "SHA256SUMS", place / "broker")
    done = fetch(place, "broker")
    assert (done.returncode, done.stdout) == (0, "jars: all there, as pinned in jars/broker/SHA256SUMS\n")
    assert fetch(place).returncode != 0


@pytest.mark.parametrize("damage", ["changed", "missing", "left over"])
def test_jars_other_than_the_pinned_ones_are_never_taken_as_they_are(damage: str, tmp_path: Path) -> None:
    place = jars_folder(tmp_path)
    if damage == "changed":
        (place / "a-1.jar").write_bytes(b"two")
    elif damage == "missing":
        (place / "a-1.jar").unlink()
    else:
        (place / "a-0.jar").write_bytes(b"older")
    assert fetch(place).returncode != 0


# --- compose -----------------------------------------------------------------------------------------------------


def services() -> dict[str, dict[str, Any]]:
    compose = yaml.safe_load(text_of("docker-compose.yaml"))
    assert compose["version"] == "3.8", "Compose v1 needs it"
    return compose["services"]


@pytest.mark.parametrize("name", sorted(services()))
def test_every_service_is_confined_watched_and_replaceable(name: str) -> None:
    service = services()[name]
    assert re.fullmatch(r"[1-9]\d*:\d+", service["user"]), "not root"
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert not {"privileged", "network_mode", "pid", "cap_add"} & set(service)
    assert not [v for v in service.get("volumes", []) if v.startswith(("/", ".", "~"))], "named volumes only"
    assert {"mem_limit", "cpus", "pids_limit"} <= set(service)
    assert [p for p in service.get("ports", []) if not p.startswith("127.0.0.1:")] == [], "open to this machine only"
    if name == "airflow-init":
        assert service["restart"] == "no", "it runs once; others wait for its success"
    else:
        assert service["healthcheck"]["test"][0] in ("CMD", "CMD-SHELL")
    assert re.fullmatch(r"\$\{[A-Z_]+_IMAGE:-[a-z0-9./-]+:[\w.-]+\}", service["image"])
    for value in service.get("build", {}).get("args", {}).values():
        assert re.fullmatch(r"\$\{BASE_IMAGE:-.+\}", value)


def test_no_secret_has_a_default_and_make_env_makes_them_all() -> None:
    text = text_of("docker-compose.yaml")
    secret = re.compile(r"PASSWORD|SECRET|_KEY|TOKEN")
    variables = re.findall(r"\$\{([A-Z_]+)([^}]*)\}", text)
    assert [v for v, default in variables if secret.search(v) and not default.startswith(":?")] == []
    for service in services().values():
        for key, value in service.get("environment", {}).items():
            if secret.search(key) and not key.endswith("_FILE"):
                assert re.search(r"\$\{[A-Z_]+:\?", str(value)), f"{key} is written out"
    required = {v for v, default in variables if default.startswith(":?")}
    recipe = text_of("Makefile").split("\n.env:")[1].split("\n\n")[0]
    assert required == set(re.findall(r'"([A-Z_]+)=?"', recipe))
    assert ".env" in text_of(".gitignore").splitlines()
    ignored = text_of(".dockerignore").splitlines()
    assert ".env" in ignored
    # What `make wheel` leaves behind would be packed into the image.
    assert {"build", "testing/build"} <= {*ignored}


def test_the_image_lists_what_is_in_it_by_a_tool_that_is_pinned() -> None:
    """The tool's own environment is gone before the image is done."""
    step = text_of("Dockerfile").split("sbom.json (CycloneDX)")[1].split("\n\n")[0]
    assert "--output-file sbom.json" in step and step.rstrip().endswith("&& rm -rf build/sbom")
    assert "--require-hashes --requirement deploy/sbom-requirements.lock" in step
    pins = re.split(r"\n(?=\S)", text_of("deploy/sbom-requirements.lock").strip())
    assert [pin for pin in pins if not re.match(r"[\w.-]+==[\w.]+[^\n]* \\\n +--hash=sha256:", pin)] == []


def test_one_dockerfile_takes_any_base_and_ends_without_root() -> None:
    lines = text_of("Dockerfile").splitlines()
    assert [line for line in lines if line.startswith("FROM ")] == ["FROM ${BASE_IMAGE}"]
    assert [line for line in lines if line.startswith("USER ")][-1] == "USER 50000:0"
