"""How fast a port is, against git, side by side in one run.

The 180-patch series of ``apply.py`` (0.26.0 to 0.27.0, one file a mail) is ported to 0.28.0, each
patch reported. The rival is one ``git am -3`` per patch on a checkout of 0.28.0 that has the old
release's objects, aborted on a conflict and gone on with the next. Whole processes are timed,
start-up included; the programs take turns, and medians are compared.

    python benchmarks/port.py [--runs N] [--folder DIR] [--json FILE]

Needs the pins in the cache (``dsv4port fetch``).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from apply import GIT, Run, make_series
from debian_port import ENVIRONMENT
from series_port import pin, scratch_repository

GOAL = 8.0
MEMORY_GOAL = 1024


def by_dsv4port(repository: Path, base: str, onto: str, patches: list[str]) -> Run:
    """One run of the program; conflicts are expected."""
    keep = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    command = [str(Path(sys.executable).with_name("dsv4port")), "port", "--repo", str(repository),
               "--base", base, "--onto", onto, "--json", *patches]  # fmt: skip
    with tempfile.TemporaryFile() as output:
        started = time.perf_counter()
        process = subprocess.Popen(command, stdout=output, stderr=output, env=keep)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
        if os.waitstatus_to_exitcode(status) not in (0, 3):
            output.seek(0)
            sys.exit(output.read().decode()[-2000:])
        output.seek(0)
        reported = len(json.loads(output.read())["patches"])
        if reported != len(patches):
            sys.exit(f"only {reported} patches were reported")
    return Run(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def by_git_am(checkout: Path, onto: str, patches: list[str]) -> Run:
    """One ``git am -3`` for each patch, each on the bare release."""
    started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    for patch in patches:
        done = subprocess.run(
            [*GIT, "am", "-3", "-q", "--keep-non-patch", patch], cwd=checkout, env=ENVIRONMENT,
            capture_output=True,
        )  # fmt: skip
        if done.returncode:
            subprocess.run([*GIT, "am", "--abort"], cwd=checkout, env=ENVIRONMENT, check=True,
                           capture_output=True)  # fmt: skip
        else:
            subprocess.run([*GIT, "reset", "-q", "--hard", onto], cwd=checkout, env=ENVIRONMENT,
                           check=True)  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Run(time.perf_counter() - started, processor, 0.0)


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--folder", type=Path)
    options.add_argument("--json", type=Path)
    chosen = options.parse_args()
    old, middle, new = pin("v0.26.0"), pin("v0.27.0"), pin("v0.28.0")
    timings: dict[str, list[Run]] = {"dsv4port port": [], "git am -3 per patch": []}
    with tempfile.TemporaryDirectory(dir=chosen.folder, prefix="dsv4port-bench-") as name:
        folder = Path(name)
        series = folder / "series"
        series.mkdir()
        patches = [str(series / file) for file in make_series(old, middle, series)]
        repository = scratch_repository(folder, Path(old.store))
        rival = folder / "git"
        subprocess.run(["git", "init", "-q", rival], check=True, env=ENVIRONMENT)
        for each in (old, new):
            subprocess.run([*GIT, "fetch", "-q", old.store, each.commit], cwd=rival, check=True,
                           env=ENVIRONMENT)  # fmt: skip
        subprocess.run([*GIT, "checkout", "-q", new.commit], cwd=rival, check=True,
                       env=ENVIRONMENT)  # fmt: skip
        by_dsv4port(repository, old.commit, new.commit, patches)
        for _ in range(chosen.runs):
            timings["dsv4port port"].append(
                by_dsv4port(repository, old.commit, new.commit, patches)
            )
            timings["git am -3 per patch"].append(by_git_am(rival, new.commit, patches))
    for name, field in (("seconds", "seconds"), ("processor seconds", "processor")):
        medians = {}
        for what, runs in timings.items():
            values = [getattr(one, field) for one in runs]
            medians[what] = statistics.median(values)
            print(
                f"{what:22} {medians[what]:7.3f} {name}  ({min(values):.3f} to {max(values):.3f})"
            )
        ratio = medians["git am -3 per patch"] / medians["dsv4port port"]
        print(f"port: {ratio:.1f} times as fast as git am -3 per patch in {name} (goal {GOAL:g})")
    print(f"memory: {max(one.memory for one in timings['dsv4port port']):.0f} MiB "
          f"(goal {MEMORY_GOAL})")  # fmt: skip
    if chosen.json:
        rows = {what: [vars(one) for one in runs] for what, runs in timings.items()}
        chosen.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
