"""Two series whose outcome is known, between vLLM releases.

*Release*: the changes of 180 files between 0.26.0 and 0.27.0, one mail a file, ported to 0.28.0.
All of it is upstream there, some changed again since: at least 170 should be recognised as
upstreamed, whole or by hunk, and none applied again. What upstream took back since (0.28.0 has a
hunk's place as 0.26.0 had it) cannot be told from two trees and is counted apart.

*Local*: 180 edits of one line in a function of the same files, ported to 0.28.0 and to 0.33.0. At
most half of git's conflicts, and every accepted hunk in the scope it was made in.

    python benchmarks/series_port.py [--json FILE] [--seed N]

Needs the pins in the cache (``dsv4port fetch``).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from apply import AUTHOR, PATCHES, ROOT, make_series
from debian_port import ENVIRONMENT, git

from dsv4port.apply.scopes import scope_map
from dsv4port.git.process import Git
from dsv4port.manifest.pins import load_pins
from dsv4port.manifest.project import Project
from dsv4port.patch.mailbox import parse_patch
from dsv4port.patch.write import format_mailbox
from dsv4port.upstream.cache import Cache
from dsv4port.upstream.pins import ImportedPin, ensure_pin


def pin(name: str) -> ImportedPin:
    """A pin of the cache."""
    return ensure_pin(load_pins(Project(ROOT)).pin(name), Cache.locate())


def scratch_repository(folder: Path, store: Path) -> Path:
    """A repository that reads the store's objects and keeps its own."""
    repository = folder / "scratch.git"
    subprocess.run(["git", "init", "-q", "--bare", repository], check=True, env=ENVIRONMENT)
    (repository / "objects" / "info" / "alternates").write_text(f"{store / 'objects'}\n")
    return repository


def port(repository: Path, base: str, onto: str, patches: list[Path]) -> dict[str, Any]:
    """Run the program, as a script would."""
    done = subprocess.run(
        [str(Path(sys.executable).with_name("dsv4port")), "port", "--repo", repository, "--base",
         base, "--onto", onto, "--json", *patches],
        capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode not in (0, 3):
        sys.exit(done.stdout + done.stderr)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def by_git(repository: Path, base: str, onto: str, sides: list[str]) -> list[tuple[str, str]]:
    """git's 3-way merge of each tree made from base: (empty, clean or conflict; tree)."""
    parent = git(repository, "commit-tree", base, "-m", "b").stdout.decode().strip()
    ours = git(repository, "commit-tree", onto, "-p", parent, "-m", "o").stdout.decode().strip()
    results = []
    for tree in sides:
        theirs = git(repository, "commit-tree", tree, "-p", parent, "-m", "t").stdout
        done = git(repository, "merge-tree", "--write-tree", ours, theirs.decode().strip())
        made = done.stdout.decode(errors="replace").split("\n", 1)[0]
        answer = "conflict" if done.returncode else "empty" if made == onto else "clean"
        results.append((answer, made))
    return results


def tree_with(repository: Path, tree: str, path: str, blob: str) -> str:
    """A tree with another blob at one path."""
    with tempfile.TemporaryDirectory() as name:
        index = {**ENVIRONMENT, "GIT_INDEX_FILE": f"{name}/index"}
        command = ["git", f"--git-dir={repository}"]
        subprocess.run([*command, "read-tree", tree], env=index, check=True)
        subprocess.run(
            [*command, "update-index", "--cacheinfo", f"100644,{blob},{path}"],
            env=index,
            check=True,
        )
        made = subprocess.run([*command, "write-tree"], env=index, check=True, capture_output=True)
        return made.stdout.decode().strip()


def content(repository: Path, tree: str, path: str) -> bytes | None:
    """A file of a tree."""
    done = git(repository, "cat-file", "blob", f"{tree}:{path}")
    return done.stdout if done.returncode == 0 else None


# The release series.


def release(repository: Path, folder: Path) -> dict[str, Any]:
    """Port the release's own changes to the release after it."""
    old, middle, new = pin("v0.26.0"), pin("v0.27.0"), pin("v0.28.0")
    series = folder / "release"
    series.mkdir()
    names = make_series(old, middle, series)
    answer = port(repository, old.commit, new.commit, [series / name for name in names])
    outcomes = Counter(row["outcome"] for row in answer["patches"])
    again: list[str] = []
    taken_back: list[str] = []
    recognised = 0
    for row in answer["patches"]:
        hunks = [hunk["outcome"] for hunk in row["hunks"]]
        recognised += any(one in ("upstreamed", "partly-upstreamed") for one in hunks)
        if row["changed"]:
            (again if applied_again(repository, new.tree, row) else taken_back).append(row["file"])
    sides = [_side(repository, old, middle, row) for row in answer["patches"]]
    rival = Counter(one for one, _ in by_git(repository, old.tree, new.tree, sides))
    return {
        "dsv4port": dict(outcomes), "recognised": recognised,
        "applied again": again, "taken back upstream": taken_back, "git": dict(rival),
        "rows": answer["patches"],
    }  # fmt: skip


def _side(repository: Path, old: ImportedPin, middle: ImportedPin, row: dict[str, Any]) -> str:
    path = row["hunks"][0]["file"]
    blob = git(repository, "rev-parse", f"{middle.tree}:{path}").stdout.decode().strip()
    return tree_with(repository, old.tree, path, blob)


def applied_again(repository: Path, onto: str, row: dict[str, Any]) -> bool:
    """Whether a hunk was put in although 0.28.0 does not have its place as 0.26.0 had it.

    Where all lines of the hunk's old side stand in 0.28.0 and the lines it adds do not, upstream
    took it back.
    """
    files = parse_patch(Path(row["file"]).read_bytes(), row["file"]).files
    for hunk in row["hunks"]:
        if hunk["outcome"] not in ("exact", "offset", "merged", "relocated", "partly-upstreamed"):
            continue
        patch = next(one for one in files if os.fsdecode(one.path) == hunk["file"])
        old, new = (b"".join(side) for side in (
            patch.hunks[hunk["number"] - 1].old_lines, patch.hunks[hunk["number"] - 1].new_lines,
        ))  # fmt: skip
        text = content(repository, onto, hunk["file"]) or b""
        if old not in text or new in text:
            return True
    return False


# Local edits.


def local_patches(repository: Path, folder: Path, seed: int) -> list[dict[str, Any]]:
    """One edit of one line in each of the release's files, at a random place."""
    old, middle = pin("v0.26.0"), pin("v0.27.0")
    chosen = random.Random(seed)
    series = folder / "local"
    series.mkdir()
    names = (
        Git(old.store)
        .run("diff", "--name-only", "-z", "--diff-filter=M", "--no-renames", old.commit,
             middle.commit)
        .stdout.split(b"\0")[:-1]
    )  # fmt: skip
    step = len(names) / PATCHES
    made = []
    for number in range(PATCHES):
        path = os.fsdecode(names[int(number * step)])
        text = content(repository, old.tree, path)
        assert text is not None
        made.append(one_edit(repository, old.tree, path, text, chosen, series, number + 1))
    return made


def one_edit(
    repository: Path, tree: str, path: str, text: bytes, chosen: random.Random, series: Path,
    number: int,
) -> dict[str, Any]:  # fmt: skip
    """Write one line anew; returns the patch, and the tree that it makes."""
    lines = text.split(b"\n")
    solid = [row for row, line in enumerate(lines) if len(line.strip()) > 3]
    row = chosen.choice(solid)
    mark = b"local%d" % number
    line = lines[row]
    lines[row] = line + b"  # " + mark if path.endswith(".py") else line + b" " + mark
    blob = git(repository, "hash-object", "-w", "--stdin", input=b"\n".join(lines)).stdout
    side = tree_with(repository, tree, path, blob.decode().strip())
    diff = git(repository, "diff", "--full-index", tree, side).stdout
    file = series / f"{number:04d}.patch"
    file.write_bytes(format_mailbox(author=AUTHOR, message=b"Local edit\n", diff=diff))
    return {"path": path, "row": row, "mark": mark.decode(), "file": str(file), "tree": side}


def local(
    repository: Path, patches: list[dict[str, Any]], old: ImportedPin, new: ImportedPin
) -> dict[str, Any]:
    """Port the local edits to one release."""
    answer = port(repository, old.commit, new.commit, [Path(one["file"]) for one in patches])
    rival = by_git(repository, old.tree, new.tree, [one["tree"] for one in patches])
    outcomes = Counter(
        row["outcome"] + (" (review)" if row["review"] else "") for row in answer["patches"]
    )
    wrong = [
        {**one, "why": why}
        for one, row in zip(patches, answer["patches"], strict=True)
        for why in wrong_scopes(repository, old.tree, one, row)
    ]
    refused = sum(row["outcome"] in ("conflict", "misplaced") for row in answer["patches"])
    return {
        "dsv4port": dict(outcomes), "conflicts": refused,
        "git": dict(Counter(one for one, _ in rival)), "wrong scope": wrong,
        "rows": answer["patches"], "by git": [one for one, _ in rival],
    }  # fmt: skip


def wrong_scopes(
    repository: Path, old: str, one: dict[str, Any], row: dict[str, Any]
) -> Iterator[str]:
    """Accepted lines that are in another scope than in the base, although that one still exists."""
    if row["outcome"] in ("conflict", "misplaced", "upstreamed"):
        return
    for path in row["changed"]:
        before = content(repository, one["tree"], one["path"])
        after = content(repository, row["tree"], path)
        assert before is not None and after is not None
        names = [_scope(one["path"], before, one["mark"]), _scope(path, after, one["mark"])]
        if None not in names and names[0] != names[1]:
            yield f"{path}: {names[0]} -> {names[1]}{' (review)' if row['review'] else ''}"


def _scope(path: str, text: bytes, mark: str) -> str | None:
    scopes = scope_map(os.fsencode(path), text)
    if scopes is None:
        return None
    number = next(
        (at for at, line in enumerate(text.split(b"\n"), 1)
         if line.endswith(mark.encode())), None)  # fmt: skip
    if number is None:
        return "nowhere"
    scope = scopes.scope_of_line(number)
    return None if scope is None else scope.name


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--seed", type=int, default=7)
    options.add_argument("--json", type=Path)
    options.add_argument("--part", choices=("release", "local"), action="append")
    chosen = options.parse_args()
    parts = chosen.part or ["release", "local"]
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="dsv4port-bench-") as name:
        folder = Path(name)
        old = pin("v0.26.0")
        repository = scratch_repository(folder, Path(old.store))
        if "release" in parts:
            results["release"] = release(repository, folder)
        if "local" in parts:
            patches = local_patches(repository, folder, chosen.seed)
            for release_name in ("v0.28.0", "v0.33.0"):
                results[release_name] = local(repository, patches, old, pin(release_name))
    for what, result in results.items():
        print(what)
        for key, value in result.items():
            if key not in ("rows", "by git"):
                print(f"  {key}: {value}")
    if chosen.json:
        chosen.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
