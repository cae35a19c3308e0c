"""Port the patches of Debian source packages from one suite's upstream to the next one's.

The maintainers did the same by hand, so there is a truth: patch i of the old series, ported from
the old upstream with the patches before it onto the state just before its namesake in the new
series, should give the state after the namesake. Kinds:

* *refreshed*: the namesake has the same removed and added lines;
* *adapted*: the maintainer changed them;
* *dropped*: there is no namesake. Ported onto the bare new upstream; of those whose header says
  that they came from upstream, the port should find that upstream has them.

Packages come from a Debian mirror by the names and sha256 in ``debian_packages.txt``:

    python benchmarks/debian_port.py --mirror URL --folder DIR [--package NAME ...] [--json FILE]

``--mirror`` is only needed for files that the folder's ``src`` does not have. Files that the mirror
no longer has are reported and their package left out. Baselines in the same run: git's 3-way merge
(``git merge-tree``), ``patch`` with fuzz 0 and 2.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

LIST = Path(__file__).with_name("debian_packages.txt")
_UPSTREAM = re.compile(
    r"^(?:Origin:\s*(?:upstream|backport)|Applied-Upstream:)|\(cherry picked from commit"
    r"|^Origin:.*(?:commit|/c/|changeset|/rev/)",
    re.IGNORECASE | re.MULTILINE,
)
_PATCH = ["patch", "-p1", "-f", "-s", "-E", "-N", "--no-backup-if-mismatch", "-r", "-"]
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
    "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C",
    "GIT_AUTHOR_NAME": "b", "GIT_AUTHOR_EMAIL": "b@example.org", "GIT_COMMITTER_NAME": "b",
    "GIT_COMMITTER_EMAIL": "b@example.org", "GIT_AUTHOR_DATE": "@0 +0000",
    "GIT_COMMITTER_DATE": "@0 +0000",
}  # fmt: skip


@dataclass
class Case:
    """One patch to port, by tree ids; ``truth`` is None for a dropped patch."""

    package: str
    patch: str
    file: str
    kind: str
    base: str
    after: str
    onto: str
    truth: str | None
    paths: list[str]
    from_upstream: bool


def git(repository: Path, *arguments: str, **options: object) -> subprocess.CompletedProcess[bytes]:
    """Run git there."""
    return subprocess.run(
        ["git", f"--git-dir={repository}", *arguments],
        env=ENVIRONMENT, capture_output=True, **options,  # type: ignore[call-overload]
    )  # fmt: skip


# Packages.


@dataclass(frozen=True)
class Source:
    """A source package: its pool folder, and its files as (name, sha256)."""

    package: str
    version: str
    folder: str
    files: tuple[tuple[str, str], ...]


def read_list() -> dict[str, list[Source]]:
    """The packages of the list: old and new source of each."""
    found: dict[str, list[Source]] = {}
    for line in LIST.read_text().splitlines():
        if line.startswith("#") or not line.strip():
            continue
        package, version, folder, *files = line.split()
        pairs = tuple((name, digest) for digest, _, name in (one.partition(":") for one in files))
        found.setdefault(package, []).append(Source(package, version, folder, pairs))
    return found


def fetch(source: Source, folder: Path, mirror: str | None) -> bool:
    """Have all files of a source package; False where the mirror lacks one."""
    for name, digest in source.files:
        if name.endswith((".asc", ".dsc")):
            continue
        path = folder / name
        if not path.exists():
            if mirror is None:
                print(f"{source.package}: {name} is not there and no --mirror is given")
                return False
            try:
                with urllib.request.urlopen(f"{mirror}/{source.folder}/{name}") as answer:
                    data = answer.read()
            except OSError as error:
                print(f"{source.package}: {name}: {error}")
                return False
            path.write_bytes(data)
        if hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            sys.exit(f"{path} has another sha256 than the list")
    return True


def unpack(source: Source, downloads: Path, place: Path) -> Path:
    """Upstream's tree in ``place/tree`` and the Debian folder in ``place/debian``."""
    tree = place / "tree"
    tree.mkdir(parents=True)
    for name, _ in source.files:
        if ".debian.tar" in name:
            with tarfile.open(downloads / name) as archive:
                archive.extractall(place, filter="tar")
    for name, _ in sorted(source.files, key=lambda file: ".orig-" in file[0]):
        if ".orig" not in name or name.endswith(".asc"):
            continue
        component = re.search(r"\.orig-([^.]+)\.tar", name)
        with tempfile.TemporaryDirectory(dir=place) as scratch:
            with tarfile.open(downloads / name) as archive:
                archive.extractall(scratch, filter="tar")
            inside = list(Path(scratch).iterdir())
            root = inside[0] if len(inside) == 1 and inside[0].is_dir() else Path(scratch)
            into = tree / component[1] if component else tree
            if component and into.exists():
                shutil.rmtree(into)
            into.mkdir(exist_ok=True)
            for item in root.iterdir():
                shutil.move(item, into / item.name)
    shutil.rmtree(tree / "debian", ignore_errors=True)
    return tree


def series(place: Path) -> list[str]:
    """Names of the patches, in order."""
    listing = place / "debian" / "patches" / "series"
    if not listing.exists():
        return []
    names = []
    for line in listing.read_text(errors="replace").splitlines():
        words = line.partition(" #")[0].split()
        if words and not words[0].startswith("#"):
            if any(word.startswith("-p") and word != "-p1" for word in words[1:]):
                return names
            names.append(words[0])
    return names


def states(repository: Path, place: Path, tree: Path, names: list[str]) -> list[str]:
    """Tree ids: bare, then after each patch as far as ``patch`` can apply them."""
    index = {**ENVIRONMENT, "GIT_INDEX_FILE": str(place / "index")}

    def write() -> str:
        subprocess.run(
            ["git", f"--git-dir={repository}", f"--work-tree={tree}", "add", "-A", "-f", "."],
            env=index, check=True, capture_output=True, cwd=tree,
        )  # fmt: skip
        return subprocess.run(
            ["git", f"--git-dir={repository}", "write-tree"], env=index, check=True,
            capture_output=True, text=True,
        ).stdout.strip()  # fmt: skip

    found = [write()]
    for name in names:
        file = place / "debian" / "patches" / name
        if not file.exists():
            break
        done = subprocess.run([*_PATCH, "-F0", "-i", str(file)], cwd=tree, capture_output=True)
        if done.returncode:
            break
        found.append(write())
    return found


def changes(data: bytes) -> list[bytes]:
    """Removed and added lines of a patch, by file, in order."""
    found: list[bytes] = []
    for line in data.splitlines():
        if line.startswith(b"+++ "):
            found.append(b"+++ " + line[4:].split(b"\t")[0].partition(b"/")[2])
        elif line[:1] in (b"+", b"-") and not line.startswith((b"--- ", b"+++ ")):
            found.append(line)
    # The signature of a mail is no change.
    return [line for line in found if line not in (b"--", b"-- ")]


def prepare(name: str, pair: list[Source], folder: Path, mirror: str | None) -> list[Case]:
    """Build the trees of a package and list its cases; kept in ``folder`` for the next run."""
    place = folder / "packages" / name
    kept = place / "cases.json"
    if kept.exists():
        return [Case(**one) for one in json.loads(kept.read_text())]
    downloads = folder / "src"
    downloads.mkdir(parents=True, exist_ok=True)
    if not all(fetch(source, downloads, mirror) for source in pair):
        return []
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    repository = place / "git"
    subprocess.run(["git", "init", "-q", "--bare", repository], env=ENVIRONMENT, check=True)
    (repository / "info" / "attributes").write_text("* -text -filter -ident -eol\n")
    sides = []
    for side, source in zip(("old", "new"), pair, strict=True):
        home = place / side
        tree = unpack(source, downloads, home)
        names = series(home)
        sides.append((home, names, states(repository, home, tree, names)))
        shutil.rmtree(tree)
    cases = list(_cases(name, place, repository, *sides))
    subprocess.run(
        ["git", f"--git-dir={repository}", "-c", "gc.auto=0", "repack", "-q", "-a", "-d",
         "--depth=0", "--window=0"],
        env=ENVIRONMENT, check=False, capture_output=True,
    )  # fmt: skip
    kept.write_text(json.dumps([asdict(case) for case in cases], indent=1))
    return cases


def _cases(name: str, place: Path, repository: Path, old: tuple, new: tuple) -> list[Case]:
    old_home, old_names, old_states = old
    new_home, new_names, new_states = new
    found = []
    by_base = Counter(Path(one).name for one in new_names)
    for at, patch in enumerate(old_names[: len(old_states) - 1]):
        file = old_home / "debian" / "patches" / patch
        data = file.read_bytes()
        header = re.split(rb"^(?:--- |diff |Index: )", data, maxsplit=1, flags=re.M)[0]
        kept = old_home / f"{at:04d}.patch"
        kept.write_bytes(data)
        base, after = old_states[at], old_states[at + 1]
        if base == after:
            continue
        paths = _paths(repository, base, after)
        upstream = bool(_UPSTREAM.search(header.decode("utf-8", "replace")))
        namesake = (
            patch
            if patch in new_names
            else next(
                (
                    one
                    for one in new_names
                    if Path(one).name == Path(patch).name and by_base[Path(one).name] == 1
                ),
                None,
            )
        )
        shared = {"package": name, "patch": patch, "file": str(kept), "base": base, "after": after,
                  "from_upstream": upstream}  # fmt: skip
        if namesake is None:
            found.append(
                Case(kind="dropped", onto=new_states[0], truth=None, paths=paths, **shared)
            )
            continue
        place_of = new_names.index(namesake)
        if place_of + 1 >= len(new_states):
            continue
        onto, truth = new_states[place_of], new_states[place_of + 1]
        new_data = (new_home / "debian" / "patches" / namesake).read_bytes()
        kind = "refreshed" if changes(data) == changes(new_data) else "adapted"
        paths = sorted({*paths, *_paths(repository, onto, truth)})
        found.append(Case(kind=kind, onto=onto, truth=truth, paths=paths, **shared))
    return found


def _paths(repository: Path, old: str, new: str) -> list[str]:
    out = git(repository, "diff-tree", "-r", "-z", "--name-only", "--no-renames", old, new).stdout
    return [os.fsdecode(path) for path in out.split(b"\0")[:-1]]


def same(repository: Path, case: Case, tree: str) -> bool:
    """Whether a result equals the maintainers' in every touched file."""
    assert case.truth is not None
    out = git(repository, "diff-tree", "-r", "-z", "--name-only", tree, case.truth).stdout
    differing = {os.fsdecode(path) for path in out.split(b"\0")[:-1]}
    return not differing & set(case.paths) if case.paths else not differing


# Engines. Each gives (answer, tree): answer is "clean", "review", "empty", "partly" or "conflict".


def ours(repository: Path, case: Case) -> tuple[str, str, dict[str, Any]]:
    """The program itself, as a script would run it."""
    from dsv4port.cli.port import report_fields
    from dsv4port.errors import BadInputError
    from dsv4port.port.repo_port import port_in_repository

    try:
        report = port_in_repository(repository, case.base, case.onto, [Path(case.file)])
    except BadInputError as error:
        return "conflict", case.onto, {"error": str(error), "hunks": []}
    row = report_fields(report)["patches"][0]
    answer = {
        "upstreamed": "empty", "partly-upstreamed": "partly", "conflict": "conflict",
        "misplaced": "conflict",
    }.get(row["outcome"], "clean")  # fmt: skip
    if row["review"] and answer != "conflict":
        answer += "+review"
    return answer, report.tree, row


def by_git(repository: Path, case: Case) -> tuple[str, str]:
    """git's 3-way merge, renames included."""
    made = git(repository, "commit-tree", case.base, "-m", "base").stdout.decode().strip()
    sides = [
        git(repository, "commit-tree", tree, "-p", made, "-m", "side").stdout.decode().strip()
        for tree in (case.onto, case.after)
    ]
    done = git(repository, "merge-tree", "--write-tree", "--name-only", *sides)
    tree = done.stdout.decode(errors="replace").split("\n", 1)[0]
    if done.returncode:
        return "conflict", case.onto
    return ("empty" if tree == case.onto else "clean"), tree


def by_patch(repository: Path, case: Case, fuzz: int) -> tuple[str, str]:
    """GNU patch in a folder with the touched files."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        index = {**ENVIRONMENT, "GIT_INDEX_FILE": str(folder / ".index")}
        work = folder / "tree"
        work.mkdir()
        command = ["git", f"--git-dir={repository}", f"--work-tree={work}"]
        subprocess.run([*command, "read-tree", case.onto], env=index, check=True)
        listed = [path.encode() for path in case.paths]
        subprocess.run(
            [*command, "checkout-index", "-f", "-q", "-z", "--stdin"],
            env=index, input=b"\0".join(listed) + b"\0", cwd=work, capture_output=True,
        )  # fmt: skip
        done = subprocess.run(
            [*_PATCH, f"-F{fuzz}", "-i", case.file], cwd=work, capture_output=True
        )
        if done.returncode:
            return "conflict", case.onto
        for path in case.paths:
            if (work / path).is_file():
                subprocess.run([*command, "add", "-f", "--", path], env=index, cwd=work,
                               capture_output=True)  # fmt: skip
            else:
                subprocess.run([*command, "rm", "-q", "--cached", "--", path], env=index, cwd=work,
                               capture_output=True)  # fmt: skip
        tree = subprocess.run([*command, "write-tree"], env=index, capture_output=True, text=True)
        return "clean", tree.stdout.strip()


def judge(repository: Path, case: Case, answer: str, tree: str) -> str:
    """What an answer is worth."""
    if answer == "conflict":
        return "conflict"
    if case.kind == "dropped":
        return answer
    right = "right" if same(repository, case, tree) else "wrong"
    return right + (" after review" if answer.endswith("+review") else "")


def measure(
    wanted: tuple[str, list[Source], Path, str | None, bool],
) -> tuple[str, float, list[dict[str, Any]]]:
    """All cases of a package: its name, seconds spent in ports, and one row for each case."""
    name, pair, folder, mirror, only_ours = wanted
    repository = folder / "packages" / name / "git"
    rows = []
    spent = 0.0
    for case in prepare(name, pair, folder, mirror):
        start = time.perf_counter()
        answer, tree, row = ours(repository, case)
        spent += time.perf_counter() - start
        results = {"dsv4port": judge(repository, case, answer, tree)}
        if not only_ours:
            results["git"] = judge(repository, case, *by_git(repository, case))
            for fuzz in (0, 2):
                results[f"patch -F{fuzz}"] = judge(
                    repository, case, *by_patch(repository, case, fuzz)
                )
        rows.append({**asdict(case), "results": results, "report": row, "tree": tree})
    return name, spent, rows


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--folder", type=Path, required=True, help="downloads and trees")
    options.add_argument("--mirror", help="a Debian mirror, such as the one apt uses")
    options.add_argument("--package", action="append")
    options.add_argument("--json", type=Path)
    options.add_argument("--only-ours", action="store_true", help="without the baselines")
    options.add_argument("--jobs", type=int, default=1)
    chosen = options.parse_args()
    tables: dict[str, Counter[tuple[str, str]]] = {}
    rows = []
    spent = 0.0
    wanted = [
        (name, pair, chosen.folder.absolute(), chosen.mirror, chosen.only_ours)
        for name, pair in read_list().items()
        if not chosen.package or name in chosen.package
    ]
    with multiprocessing.Pool(chosen.jobs) as pool:
        for name, seconds, found in pool.imap_unordered(measure, wanted):
            print(f"{name}: {len(found)} patches", flush=True)
            rows += found
            spent += seconds
    for row in rows:
        kind = row["kind"]
        if kind == "dropped" and row["from_upstream"]:
            kind += " from upstream"
        for engine, verdict in row["results"].items():
            tables.setdefault(engine, Counter())[kind, verdict] += 1
    for engine, table in tables.items():
        print(f"\n{engine}")
        for kind in sorted({kind for kind, _ in table}):
            found = {verdict: n for (one, verdict), n in table.items() if one == kind}
            total = sum(found.values())
            text = ", ".join(f"{verdict} {n}" for verdict, n in sorted(found.items()))
            print(f"  {kind} ({total}): {text}")
    print(f"\n{len(rows)} ports in {spent:.1f} s")
    if chosen.json:
        chosen.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
