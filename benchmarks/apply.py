"""How fast apply, verify and import are, against git and quilt, side by side in one run.

Makes a series of 180 patches by itself: the changes of 180 files between the vLLM 0.26.0 and
0.27.0 sdists, one mail a file. Every program is timed as a whole process, start-up included; the
rivals take turns, and medians are compared. With --profile it says instead where the time of each
command goes.

usage: benchmarks/apply.py [--runs N] [--folder DIR] [--import] [--json FILE]
       benchmarks/apply.py --profile [--folder DIR]
"""

from __future__ import annotations

import argparse
import json
import os
import pstats
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from dsv4port.git.process import Git
from dsv4port.manifest.pins import load_pins
from dsv4port.manifest.project import Project
from dsv4port.patch.model import Identity
from dsv4port.patch.write import format_mailbox
from dsv4port.upstream.cache import Cache
from dsv4port.upstream.pins import ImportedPin, ensure_pin

ROOT = Path(__file__).resolve().parent.parent
PATCHES = 180
AUTHOR = Identity(b"Bench Mark", b"bench@example.org", 1_700_000_000, b"+0000")
GIT = ("git", "-c", "user.name=b", "-c", "user.email=b@example.org", "-c", "commit.gpgsign=false",
       "-c", "gc.auto=0", "-c", "core.autocrlf=false")  # fmt: skip


@dataclass(frozen=True)
class Run:
    """Wall seconds, processor seconds of all its processes, and the largest one's peak MiB.

    Processor seconds say more on a machine that others use too, but not what runs side by side.

    The kernel counts what this program held when it started the command too, so figures below
    this program's own size (some 60 MiB) read as that.
    """

    seconds: float
    processor: float
    memory: float


def run(command: list[str], folder: Path, **environment: str) -> Run:
    """Run one command to its end and measure it."""
    keep = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryFile() as output:
        started = time.perf_counter()
        process = subprocess.Popen(
            command, cwd=folder, env={**keep, **environment}, stdout=output, stderr=output
        )
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
        if status != 0:
            output.seek(0)
            sys.exit(f"{' '.join(command[:6])} failed:\n{output.read().decode()[-2000:]}")
    return Run(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def make_series(old: ImportedPin, new: ImportedPin, folder: Path) -> list[str]:
    """Write the patches; returns their names. Files are taken evenly over the whole change."""
    git = Git(old.store)
    names = git.run(
        "diff", "--name-only", "-z", "--diff-filter=M", "--no-renames", old.commit, new.commit
    ).stdout.split(b"\0")[:-1]
    step = len(names) / PATCHES
    chosen = [names[int(number * step)] for number in range(PATCHES)]
    files = []
    for number, name in enumerate(chosen, 1):
        diff = git.run(
            "diff", "--full-index", "--binary", old.commit, new.commit, "--", os.fsdecode(name)
        ).stdout
        message = b"[Bench] Change %s\n\nOne file of a release step.\n" % name
        file = f"{number:04d}-change.patch"
        (folder / file).write_bytes(format_mailbox(author=AUTHOR, message=message, diff=diff))
        files.append(file)
    return files


def make_project(root: Path, old: ImportedPin, new: ImportedPin) -> Path:
    """A project whose stack `bench` is the series; returns the folder of the patches."""
    (root / "manifests" / "stacks").mkdir(parents=True)
    (root / "manifests" / "locks").mkdir()
    shutil.copy(ROOT / "manifests" / "pins.yaml", root / "manifests" / "pins.yaml")
    series = root / "patchsets" / "bench" / "v0.26.0"
    series.mkdir(parents=True)
    files = make_series(old, new, series)
    (series / "series").write_text("".join(f"{name}\n" for name in files))
    (series.parent / "patchset.yaml").write_text(
        "format: 1\nname: bench\ntitle: a release step in pieces\nwhy: something to measure\n"
        "origin:\n  author: dsv4port\n  written: here\nseries:\n  v0.26.0: v0.26.0\n"
    )
    (root / "manifests" / "stacks" / "bench.yaml").write_text(
        "format: 1\ntitle: the benchmark's stack\npin: v0.26.0\ntarget: none\npatchsets: [bench]\n"
    )
    return series


def both_pins() -> tuple[ImportedPin, ImportedPin]:
    """The pins that the series is made from."""
    cache = Cache.locate()
    pins = load_pins(Project(ROOT))
    return ensure_pin(pins.pin("v0.26.0"), cache), ensure_pin(pins.pin("v0.27.0"), cache)


def measure(runs: int, folder: Path) -> dict[str, list[Run]]:
    """All timings but the import's."""
    old, new = both_pins()
    project = folder / "project"
    series = make_project(project, old, new)
    tool = [str(Path(sys.executable).with_name("dsv4port")), "--project", str(project)]
    rival = folder / "git"
    # A repository of its own with the pin alone, as a user of git would have it.
    subprocess.run(["git", "init", "-q", rival], check=True)
    subprocess.run(
        ["git", "fetch", "-q", old.store, "refs/pins/v0.26.0/sdist"], cwd=rival, check=True
    )
    subprocess.run([*GIT, "checkout", "-q", old.commit], cwd=rival, check=True)
    quilt = folder / "quilt"
    if shutil.which("quilt"):
        quilt.mkdir()
        archive = subprocess.Popen(
            ["git", "archive", old.commit], cwd=rival, stdout=subprocess.PIPE
        )
        subprocess.run(["tar", "-x", "-C", quilt], stdin=archive.stdout, check=True)
    run([*tool, "lock", "bench"], project)
    run([*tool, "reset", "v0.26.0"], project)
    patches = sorted(str(path) for path in series.glob("*.patch"))
    timings: dict[str, list[Run]] = {}

    def note(what: str, result: Run) -> None:
        timings.setdefault(what, []).append(result)

    for _ in range(runs):
        subprocess.run([*GIT, "reset", "-q", "--hard", old.commit], cwd=rival, check=True)
        note("git am -3", run([*GIT, "am", "-3", "-q", "--keep-non-patch", *patches], rival))
        run([*tool, "reset", "v0.26.0"], project)
        # As with git, the store does not have the commits yet.
        _forget_results(project, old)
        note("apply", run([*tool, "apply", "bench"], project))
        note("apply again", run([*tool, "apply", "bench"], project))
        note("verify", run([*tool, "verify", "bench"], project))
        note("verify --deep", run([*tool, "verify", "bench", "--deep"], project))
        note("status", run([*tool, "status"], project))
        note("--help", run([*tool, "--help"], project))
        if quilt.exists():
            settings = {"QUILT_PATCHES": str(series), "QUILT_SERIES": str(series / "series")}
            note(
                "quilt push -a",
                run(["quilt", "--quiltrc=-", "push", "-a", "-q"], quilt, **settings),
            )
            run(["quilt", "--quiltrc=-", "pop", "-a", "-f", "-q"], quilt, **settings)
    made = subprocess.run(
        ["git", "rev-parse", "HEAD^{tree}"], cwd=rival, capture_output=True, text=True, check=True
    ).stdout
    ours = subprocess.run(
        ["git", "rev-parse", "HEAD^{tree}"], cwd=project / "vendor" / "vllm",
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    if made != ours:
        sys.exit(f"the results differ: git {made}, dsv4port {ours}")
    return timings


def _forget_results(project: Path, pin: ImportedPin) -> None:
    packs = project / "vendor" / "vllm" / ".git" / "objects" / "pack"
    for path in packs.iterdir():
        if path.stem != pin.pack.stem:
            path.unlink()


def measure_import(runs: int, folder: Path) -> dict[str, list[Run]]:
    """Import of the 0.26.0 sdist against tar + git add + git commit."""
    cache = Cache.locate()
    pin = load_pins(Project(ROOT)).pin("v0.26.0")
    ensure_pin(pin, cache)
    archive = next((cache.folder / "downloads").glob("**/vllm-0.26.0.tar.gz"))
    timings: dict[str, list[Run]] = {"tar + add + commit": [], "fetch --from": []}
    script = (
        'set -e; mkdir t; tar -xzf "$0" --strip-components=1 -C t; cd t; git init -q; '
        "git add -A -f; git -c user.name=b -c user.email=b@e.org commit -qm pin"
    )
    for number in range(runs):
        place = folder / f"import-{number}"
        place.mkdir()
        timings["tar + add + commit"].append(run(["sh", "-c", script, str(archive)], place))
        tool = [str(Path(sys.executable).with_name("dsv4port")), "--project", str(ROOT)]
        fetch = [*tool, "fetch", "v0.26.0", "--from", str(archive)]
        timings["fetch --from"].append(run(fetch, place, DSV4PORT_CACHE=str(place / "cache")))
        shutil.rmtree(place)
    return timings


def profile(folder: Path) -> None:
    """Print where the time of each command goes, by Python's own profilers.

    Two runs each: one that times the imports, one that times the functions. Both slow the program
    down, the second by half; what counts are the proportions.
    """
    old, new = both_pins()
    project = folder / "project"
    make_project(project, old, new)
    tool = [sys.executable, "-m", "dsv4port", "--project", str(project)]
    run([*tool, "lock", "bench"], project)
    run([*tool, "apply", "bench"], project)
    for name, command in PROFILED.items():
        for kind in ("imports", "functions"):
            run([*tool, "reset", "v0.26.0"], project)
            _forget_results(project, old)
            if name != "apply":
                run([*tool, "apply", "bench"], project)
            print(f"\n{name}: {kind}")
            if kind == "imports":
                _profile_imports([*tool[1:], *command], project)
            else:
                _profile_functions([*tool[1:], *command], project, folder / "profile")


def _profile_imports(arguments: list[str], project: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments],
        cwd=project, capture_output=True, text=True, check=True,
        env={k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"},
    )  # fmt: skip
    rows = [line.split(":", 1)[1].split("|") for line in done.stderr.splitlines() if "|" in line]
    times = [(int(row[0]), row[2].strip()) for row in rows if row[0].strip().isdigit()]
    groups: dict[str, int] = {}
    for microseconds, module in times:
        group = module.partition(".")[0]
        groups[group] = groups.get(group, 0) + microseconds
    print(f"  {sum(groups.values()) / 1000:7.1f} ms  all {len(times)} modules")
    for group, microseconds in sorted(groups.items(), key=lambda row: -row[1])[:8]:
        print(f"  {microseconds / 1000:7.1f} ms  {group}")


def _profile_functions(arguments: list[str], project: Path, file: Path) -> None:
    run([sys.executable, "-m", "cProfile", "-o", str(file), *arguments], project)
    found = pstats.Stats(str(file)).stats  # type: ignore[attr-defined]
    print(f"  {sum(row[2] for row in found.values()) * 1000:7.1f} ms  all functions")
    ours = {key: row for key, row in found.items() if f"{os.sep}dsv4port{os.sep}" in key[0]}
    for (path, _, function), row in sorted(ours.items(), key=lambda item: -item[1][3])[:40]:
        module = path.rpartition(f"{os.sep}dsv4port{os.sep}")[2].removesuffix(".py")
        print(f"  {row[3] * 1000:7.1f} ms  {module} {function} ({row[1]} calls)")


PROFILED = {
    "apply": ["apply", "bench"],
    "apply again": ["apply", "bench"],
    "verify": ["verify", "bench"],
    "status": ["status"],
}

GOALS = {
    "apply": (("git am -3", 6.0), ("quilt push -a", 9.0)),
    "apply again": (("git am -3", 15.0),),
    "verify": (("git am -3", 15.0),),
    "fetch --from": (("tar + add + commit", 2.0),),
}


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--folder", type=Path)
    options.add_argument("--import", dest="imports", action="store_true", help="the import too")
    options.add_argument("--json", type=Path)
    options.add_argument("--profile", action="store_true", help="where the time goes, instead")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.folder, prefix="dsv4port-bench-") as name:
        if chosen.profile:
            profile(Path(name))
            return
        timings = measure(chosen.runs, Path(name))
        if chosen.imports:
            timings |= measure_import(max(2, chosen.runs // 2), Path(name))
    medians = {what: statistics.median(r.seconds for r in found) for what, found in timings.items()}
    work = {what: statistics.median(r.processor for r in found) for what, found in timings.items()}
    for what, found in timings.items():
        seconds = [result.seconds for result in found]
        peak = max(result.memory for result in found)
        print(f"{what:20} {medians[what]:7.3f} s  ({min(seconds):.3f} to {max(seconds):.3f})"
              f"  processor {work[what]:6.3f} s  {peak:4.0f} MiB")  # fmt: skip
    for what, rivals in GOALS.items():
        for rival, goal in rivals:
            if what in medians and rival in medians:
                ratio = medians[rival] / medians[what]
                work_ratio = work[rival] / work[what]
                print(f"{what}: {ratio:.1f} times as fast as {rival} (goal {goal:g}), "
                      f"by processor time {work_ratio:.1f}")  # fmt: skip
            elif what in medians:
                print(f"{what} against {rival}: not measured, {rival.split()[0]} is not installed")
    if chosen.json:
        rows = {what: [vars(result) for result in found] for what, found in timings.items()}
        chosen.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
