"""Time, memory and false alarms of `dsv4port drift` on real pins.

    python benchmarks/drift.py time             # index of one pin: cold, next pin, warm command
    python benchmarks/drift.py alarms [FILES]   # lines that upstream kept must raise no alarm
    python benchmarks/drift.py list PROBE...    # findings of probe series, to be judged by hand

The pins must be in the cache. `alarms` takes functions that are word for word the same in two pins
as if a series had written them: whatever they use still works, since upstream still uses it. So
every warning or error about them is false. FILES is how many files are looked at per pair of pins
(default 200); which ones is decided by a fixed seed.
"""

from __future__ import annotations

import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAIRS = (
    ("v0.25.1", "v0.26.0"),
    ("v0.26.0", "v0.27.0"),
    ("v0.28.0", "v0.29.0"),
    ("v0.31.0", "v0.32.0"),
    ("v0.26.0", "v0.30.0"),
    ("v0.28.0", "v0.33.0"),
)
ROUNDS = 7


def main() -> None:
    """Run what the command line names."""
    what = sys.argv[1] if len(sys.argv) > 1 else "time"
    if what == "alarms":
        measure_alarms(int(sys.argv[2]) if len(sys.argv) > 2 else 200)
    elif what == "time":
        measure_time()
    else:
        sys.exit(__doc__)


# ---- time


def measure_time() -> None:
    """Cold and warm, as a user sees it, with the memory of all processes."""
    from dsv4port.upstream.cache import Cache

    cache = Cache.locate()
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder)
        for name in ("pins", "store.git"):
            (fresh / name).symlink_to(cache.folder / name)
        print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        report("one pin, cold", command(fresh, "v0.26.0", "v0.26.0"))
        report("next pin (a third of the files is new)", command(fresh, "v0.26.0", "v0.27.0"))
        report("far pin", command(fresh, "v0.26.0", "v0.33.0"))
        size = sum(path.stat().st_size for path in (fresh / "drift").iterdir())
        print(f"index of three pins: {size / 1e6:.1f} MB")
        for old, new in (("v0.26.0", "v0.27.0"), ("v0.26.0", "v0.33.0")):
            runs = [command(fresh, old, new) for _ in range(ROUNDS)]
            seconds = statistics.median(run[0] for run in runs)
            used = statistics.median(run[1] for run in runs)
            print(f"warm {old} to {new}: {seconds:.2f} s, {used:.2f} s of processor")


def command(cache: Path, old: str, new: str) -> tuple[float, float, float]:
    """Seconds, processor seconds and peak megabytes of one process of one command."""
    arguments = ["drift", "--from", old, "--to", new, "--patchset", "graph-staging", "--json"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "dsv4port", *arguments],
        cwd=ROOT, env={**os.environ, "DSV4PORT_CACHE": str(cache)}, capture_output=True,
    )  # fmt: skip
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1):
        sys.exit(done.stdout.decode() + done.stderr.decode())
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, used, after.ru_maxrss / 1e3


def report(what: str, run: tuple[float, float, float]) -> None:
    """Print one measurement."""
    print(f"{what}: {run[0]:.2f} s, {run[1]:.2f} s of processor, {run[2]:.0f} MB at most")


# ---- false alarms


def measure_alarms(files: int) -> None:
    """Count alarms about lines that upstream kept."""
    from dsv4port.drift.findings import Severity
    from dsv4port.drift.match import find_drift
    from dsv4port.drift.series import Workbench
    from dsv4port.manifest.pins import load_pins
    from dsv4port.manifest.project import Project
    from dsv4port.upstream.cache import Cache
    from dsv4port.upstream.pins import ensure_pin

    cache = Cache.locate()
    pins = load_pins(Project(ROOT))
    with Workbench(cache) as bench:
        for old_name, new_name in PAIRS:
            old = bench.index(ensure_pin(pins.pin(old_name), cache))
            new = bench.index(ensure_pin(pins.pin(new_name), cache))
            uses, lines = kept_uses(old, new, files)
            start = time.perf_counter()
            findings = list(find_drift(old, new, uses))
            alarms = [one for one in findings if one.severity is not Severity.NOTE]
            kinds = dict(Counter(one.kind.value for one in alarms))
            print(
                f"{old_name} to {new_name}: {lines} lines, {len(uses)} uses, "
                f"{len(alarms)} alarms {kinds}, {time.perf_counter() - start:.1f} s", flush=True,
            )  # fmt: skip
            for one in alarms:
                line = one.concerns[0]
                print(f"  {one.kind.value}: {one.message} [{line.path}:{line.line} {line.text}]")


def kept_uses(old: object, new: object, files: int) -> tuple[list[object], int]:
    """Uses of functions and imports that are the same in both trees."""
    from dsv4port.drift.facts import SymbolKind
    from dsv4port.drift.findings import Concern
    from dsv4port.drift.index import TreeIndex
    from dsv4port.drift.python_uses import python_uses

    assert isinstance(old, TreeIndex) and isinstance(new, TreeIndex)
    paths = sorted(
        path
        for path, blob in old.files.items()
        if path.startswith("vllm/") and path.endswith(".py") and new.files.get(path, blob) != blob
    )
    random.Random(20260).shuffle(paths)
    uses: list[object] = []
    count = 0
    for path in paths[:files]:
        before, after = old.facts(path), new.facts(path)
        kept: set[int] = set()
        for name, symbol in before.symbols.items():
            other = after.symbols.get(name)
            if (
                symbol.kind is SymbolKind.FUNCTION
                and symbol.body
                and other is not None
                and (other.body, other.parameters, other.annotation, other.decorators)
                == (symbol.body, symbol.parameters, symbol.annotation, symbol.decorators)
            ):
                kept.update(range(symbol.line, symbol.end + 1))
        changed_imports = {
            bound.line
            for name, bound in before.imports.items()
            if name not in after.imports or after.imports[name][:3] != bound[:3]
        }
        kept |= {bound.line for bound in before.imports.values()} - changed_imports
        text = old.content(path).decode("utf-8", "replace").splitlines()
        lines = {
            number: Concern("kept", path, number, number, text[number - 1].strip())
            for number in kept
        }
        count += len(lines)
        uses += python_uses(old, old, path, lines, lines)
    return uses, count


if __name__ == "__main__":
    main()
