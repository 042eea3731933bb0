"""Runs ticks against a OneLake whose calls fail at random, for some minutes; the job is killed now and then.

``make bench-faults MINUTES=30``. The emulator runs in this process; the jobs run in another one that keeps its Spark
session from tick to tick until SIGKILL ends it at any moment, with or without its children. At the end the faults
stop and one more tick runs; then every table must equal the source, and every file number must be made exactly once.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.generate import ROOT
from fabric_emulator.web.emulator_server import EmulatorServer
from tests.fault_run import FaultRun, perform
from tests.onelake import connection_variable

_KILLED = 0.12
_LONGEST_JOB = 300.0


class JobProcess:
    """Jobs in a process of their own, begun anew after it was killed.

    Args:
        mirror_file: of the mirror.
        random: draws when to kill.
        log: gets what the process prints as errors.
    """

    def __init__(self, mirror_file: Path, random: Random, log: Path) -> None:
        self._mirror_file, self._random, self._log = mirror_file, random, log
        self._process: subprocess.Popen[str] | None = None
        self.kills = 0

    def __call__(self, job: str) -> Mapping[str, Any]:
        """Do a job, or be killed while doing it."""
        return self._ask(job, self._random.uniform(0.05, 6.0) if self._random.random() < _KILLED else None)

    def unharmed(self, job: str) -> Mapping[str, Any]:
        """Do a job to its end."""
        return self._ask(job, None)

    def close(self) -> None:
        """End the process, and all that it began."""
        if self._process is not None:
            self._kill(self._process, children=True)

    def _ask(self, job: str, kill_after: float | None) -> Mapping[str, Any]:
        process = self._process = self._process or self._begun()
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(f"{job}\n")
        process.stdin.flush()
        answer = _line(process, kill_after or _LONGEST_JOB)
        if answer is None and kill_after is not None:
            self._kill(process, children=self._random.random() < 0.5)
            self.kills += 1
            return {"killed": True}
        if not answer:
            raise SystemExit(f"{job}: no answer; its end:\n{self._log.read_text()[-4000:]}")
        found: dict[str, Any] = json.loads(answer)
        return found

    def _begun(self) -> subprocess.Popen[str]:
        command = [sys.executable, __file__, "--job", str(self._mirror_file)]
        with self._log.open("a") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
            )
        ready = _line(process, _LONGEST_JOB)
        if not ready:
            raise SystemExit(f"the job process did not begin:\n{self._log.read_text()[-4000:]}")
        return process

    def _kill(self, process: subprocess.Popen[str], *, children: bool) -> None:
        # Without its children, workers go on for a moment, and what they ask of the store takes effect.
        process.kill()
        if not children:
            time.sleep(self._random.uniform(0.0, 1.0))
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        self._process = None


def _line(process: subprocess.Popen[str], seconds: float) -> str | None:
    """The next line, empty at the end; None when there is none in time."""
    assert process.stdout is not None
    # One line for one question: nothing of it is ever left in the reader's buffer.
    ready, _, _ = select.select([process.stdout], [], [], seconds)
    return process.stdout.readline() if ready else None


def serve_jobs(mirror_file: Path) -> None:
    """Read jobs from standard input, and answer each in one line, until its end."""
    from spark_jobs.runtime.session import build_session

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a job prints is no answer
    spark = build_session("faults", cores=2)
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(perform(line.strip(), mirror_file, spark)), file=answers, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--job", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.job:
        serve_jobs(arguments.job)
        return
    folder = ROOT / "faults"
    shutil.rmtree(folder, ignore_errors=True)

    def connect(server: EmulatorServer) -> None:
        os.environ["AIRFLOW_CONN_LAKE"] = connection_variable(server)

    run = FaultRun(folder, arguments.seed, connect)
    jobs = JobProcess(run.pipeline.file, Random(arguments.seed), folder / "jobs.log")
    begun, reported, steps = time.monotonic(), 0.0, 0
    print(f"seed {arguments.seed}", flush=True)
    try:
        while (passed := time.monotonic() - begun) < 60 * arguments.minutes:
            run.step(jobs)
            steps += 1
            if passed - reported > 60:
                reported = passed
                print(f"{passed / 60:.0f} min, {steps} runs, {run.came_of}", flush=True)
        run.finish(jobs.unharmed)
        print(f"seed {arguments.seed}: {steps} runs in {passed / 60:.1f} minutes, {jobs.kills} killed; exact")
        print(f"came of them: {dict(sorted(run.came_of.items()))}")
        print(f"faults: {dict(sorted(run.server.faults.struck().items()))}")
        print(f"calls: {dict(sorted(run.server.faults.calls().items()))}")
        numbers = {source: state.row.confirmed for source, state in run.pipeline.reader.tables().items()}
        print(f"numbers: {numbers}")
    finally:
        jobs.close()
        run.close()
    shutil.rmtree(folder)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONPATH", str(Path(__file__).resolve().parents[1]))
    main()
