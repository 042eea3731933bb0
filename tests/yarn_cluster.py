"""YARN in one process, which sees nothing of the folder for temporary files of who submits."""

from __future__ import annotations

import glob
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark

ROOT = Path(__file__).resolve().parent.parent
SPARK = Path(pyspark.__file__).parent
JARS = ROOT / "jars" / "yarn"
_NAMESPACES = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
_SHARED = ("hadoop-client", "slf4j", "log4j", "jcl", "commons-logging", "commons-cli")
_SETTINGS = {
    "yarn.nodemanager.resource.memory-mb": "4096",
    "yarn.scheduler.minimum-allocation-mb": "128",
    "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "99.9",
    "yarn.nodemanager.vmem-check-enabled": "false",
    "yarn.nodemanager.pmem-check-enabled": "false",
    "yarn.scheduler.capacity.root.queues": "default",
    "yarn.scheduler.capacity.root.default.capacity": "100",
    "yarn.scheduler.capacity.maximum-am-resource-percent": "1.0",
    "fs.defaultFS": "file:///",
}


def is_there() -> bool:
    """Whether `make jars-yarn` has fetched it."""
    return any(JARS.glob("hadoop-client-minicluster-*.jar"))


class YarnCluster:
    """A running cluster.

    Args:
        settings: of Hadoop, as the client needs them.
        staging: a folder that client and cluster see, for what a submission uploads.
    """

    def __init__(self, settings: str, staging: Path) -> None:
        self.settings = settings
        self.staging = staging

    def configure(self, folder: Path) -> dict[str, str]:
        """Write a client's configuration into a folder; the environment that names it."""
        for name in ("core-site.xml", "yarn-site.xml"):
            (folder / name).write_text(self.settings, encoding="utf-8")
        conf = {
            "spark.yarn.stagingDir": self.staging.as_uri(),
            "spark.yarn.jars": f"local:{SPARK}/jars/*",
            "spark.yarn.appMasterEnv.SPARK_LOCAL_IP": "127.0.0.1",
            "spark.executorEnv.SPARK_LOCAL_IP": "127.0.0.1",
            "spark.executor.instances": "1",
            "spark.driver.memoryOverhead": "128m",
            "spark.executor.memoryOverhead": "128m",
        }
        lines = "".join(f"{name} {value}\n" for name, value in conf.items())
        (folder / "spark-defaults.conf").write_text(lines, encoding="utf-8")
        return {"HADOOP_CONF_DIR": str(folder), "SPARK_CONF_DIR": str(folder)}

    def logs(self) -> str:
        """All that drivers, executors and their launchers wrote."""
        return "\n".join(
            path.read_text(encoding="utf-8", errors="replace")
            for path in sorted(self.staging.parent.rglob("*"))
            if path.is_file() and path.suffix not in (".jar", ".zip", ".crc")
        )


@contextmanager
def running_yarn(hidden: Path, key: str, key_file: Path) -> Iterator[YarnCluster]:
    """A cluster that sees neither *hidden* nor the folder for temporary files, but a key of its own in *key_file*.

    The key's file lies in the temporary folder of the cluster alone.
    """
    place = Path(tempfile.mkdtemp(prefix="yarn-", dir="/var/tmp"))
    hide = [f"mount -t tmpfs none {shlex.quote(str(folder))}" for folder in (hidden, tempfile.gettempdir())]
    bring = f"cat > {shlex.quote(str(key_file))} && exec {shlex.join([sys.executable, '-m', __name__, str(place)])}"
    process: subprocess.Popen[str] = subprocess.Popen(
        [*_NAMESPACES, "sh", "-c", " && ".join([*hide, bring])],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(key)
        process.stdin.close()
        settings = process.stdout.readline()
        assert settings.startswith("<?xml"), f"YARN did not start: see {place}"
        (place / "staging").mkdir()
        yield YarnCluster(settings, place / "staging")
    finally:
        process.kill()
        process.wait(300)
        subprocess.run(["rm", "-rf", str(place)], check=True)


def _serve(place: Path) -> None:
    """Start it below a folder, print its settings as one line, and run until this process is killed."""
    import signal

    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

    shared = [jar for jar in sorted(glob.glob(f"{SPARK}/jars/*.jar")) if Path(jar).name.startswith(_SHARED)]
    said = (place / "yarn.log").open("w")
    port = launch_gateway(
        classpath=os.pathsep.join([*sorted(map(str, JARS.glob("*.jar"))), *shared]),
        javaopts=["-Xmx512m", "-XX:TieredStopAtLevel=1", f"-Djava.io.tmpdir={place}", f"-Dtest.build.data={place}"],
        die_on_exit=True,
        redirect_stdout=said,
        redirect_stderr=said,
        cwd=str(place),
    )
    java: Any = JavaGateway(gateway_parameters=GatewayParameters(port=port)).jvm
    settings = java.org.apache.hadoop.yarn.conf.YarnConfiguration()
    for name, value in _SETTINGS.items():
        settings.set(name, value)
    cluster = java.org.apache.hadoop.yarn.server.MiniYARNCluster("yarn", 1, 1, 1)
    cluster.init(settings)
    cluster.start()
    text = java.java.io.StringWriter()
    cluster.getConfig().writeXml(text)
    print(text.toString().replace("\n", " "), flush=True)
    signal.pause()


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
