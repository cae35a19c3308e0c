"""Where a line goes that is inserted in a function, when the file has changed since.

A random simple statement inside a function of a file that changed between two vLLM releases gets
one line after it; the diff, with three lines of context, is ported to the newer release. The line's
scope (qualified name, by Python's own ``ast``) before and after is compared. *Wrong*: another scope
although the old one still exists there. *Moved*: another scope, and the old one is gone. Git's
3-way merge (``git merge-file``) of the same edits is the rival.

    python benchmarks/placement.py [--count 5000] [--seed N] [--any] [--json FILE]

By default only DeepSeek-V4-related paths, whose kernels and classes are full of look-alikes. Needs
the pins in the cache (``dsv4port fetch --all``).
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from debian_port import ENVIRONMENT
from series_port import pin

from dsv4port.apply.file_patch import Entry as File
from dsv4port.git.objects import MODE_FILE
from dsv4port.git.process import Git
from dsv4port.git.reader import ObjectReader
from dsv4port.patch.diff import parse_diff
from dsv4port.port.file_port import FilePorter, base_state
from dsv4port.port.outcomes import Policy

PINS = ("0.24.0", "0.25.1", "0.26.0", "0.27.0", "0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0",
        "0.33.0")  # fmt: skip
STEPS = [*pairwise(PINS), ("0.24.0", "0.28.0"), ("0.24.0", "0.33.0"),
         ("0.28.0", "0.33.0")]  # fmt: skip
DSV4 = re.compile(
    r"deepseek_v4|deepseek_v2|deepseek_mtp|mla|sparse_attn|fused_moe|deep_gemm|fp8|indexer|kv_cache"
    r"|gpu_model_runner"
)
_SIMPLE = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Assert, ast.Delete)


def changed_files(old: str, new: str, every: bool) -> list[tuple[str, bytes, bytes]]:
    """Python files that differ between two pins, with both contents."""
    before, after = pin(f"v{old}"), pin(f"v{new}")
    git = Git(before.store)
    names = git.run(
        "diff", "--name-only", "-z", "--diff-filter=M", "--no-renames", before.commit, after.commit,
        "--", "*.py",
    ).stdout.split(b"\0")[:-1]  # fmt: skip
    wanted = [os.fsdecode(name) for name in names if every or DSV4.search(os.fsdecode(name))]
    with ObjectReader(git) as reader:
        contents = [
            [found[2] if found else b"" for found in
             reader.find_many(f"{side.tree}:{path}" for path in wanted)]
            for side in (before, after)
        ]  # fmt: skip
    return list(zip(wanted, *contents, strict=True))


def statements(text: bytes) -> list[ast.stmt]:
    """Simple statements that are inside a function."""
    found: list[ast.stmt] = []

    def walk(node: ast.AST, inside: bool) -> None:
        inside = inside or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        for child in ast.iter_child_nodes(node):
            if inside and isinstance(child, _SIMPLE):
                found.append(child)
            walk(child, inside)

    walk(ast.parse(text), False)
    return found


def scope_of(text: bytes, mark: str) -> str | None:
    """Qualified name around the line that has the mark; None where the text does not parse."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return None
    line = next(
        (number for number, one in enumerate(text.split(b"\n"), 1) if mark.encode() in one), 0
    )
    names: list[str] = []

    def walk(node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                first = min([child.lineno, *(one.lineno for one in child.decorator_list)])
                assert child.end_lineno is not None
                if first <= line <= child.end_lineno:
                    names.append(child.name)
                    walk(child)
                    return
            else:
                walk(child)

    walk(tree)
    return ".".join(names)


def all_scopes(text: bytes) -> set[str]:
    """Every qualified name that a text defines."""
    found: set[str] = set()

    def walk(node: ast.AST, names: tuple[str, ...]) -> None:
        for child in ast.iter_child_nodes(node):
            inner = names
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                inner = (*names, child.name)
                found.add(".".join(inner))
            walk(child, inner)

    walk(ast.parse(text), ())
    return found


def make_edit(text: bytes, chosen: random.Random, mark: str) -> tuple[bytes, bytes] | None:
    """The text with one line more, and the diff of it with three lines of context."""
    lines = text.split(b"\n")
    places = statements(text)
    if not places:
        return None
    statement = chosen.choice(places)
    assert statement.end_lineno is not None
    row = statement.end_lineno
    first = lines[statement.lineno - 1]
    indent = first[: len(first) - len(first.lstrip())]
    added = indent + mark.encode() + b" = 0"
    start, stop = max(row - 3, 0), min(row + 3, len(lines))
    body = [b" " + line for line in lines[start:row]]
    body.append(b"+" + added)
    body += [b" " + line for line in lines[row:stop]]
    if stop == len(lines):
        # The last line is empty: the text ends in a line feed.
        body.pop()
        stop -= 1
    old = stop - start
    diff = b"--- a/f.py\n+++ b/f.py\n@@ -%d,%d +%d,%d @@\n%s\n" % (
        start + 1, old, start + 1, old + 1, b"\n".join(body),
    )  # fmt: skip
    return b"\n".join([*lines[:row], added, *lines[row:]]), diff


def by_dsv4port(path: str, diff: bytes, old: bytes, new: bytes) -> tuple[str, bytes | None, Any]:
    """Outcome, merged content, and the report of the hunk."""
    (patch,), _ = parse_diff(diff.replace(b"f.py", path.encode()), "patch")
    before = File(MODE_FILE, old)
    ported = FilePorter(
        patch, base_state(patch, before), File(MODE_FILE, new), path.encode(), occupant=None,
        policy=Policy(),
    ).port()  # fmt: skip
    report = ported.reports[0]
    if not report.outcome.done:
        return report.outcome.value, None, report
    changed = ported.changes.get(path.encode())
    return report.outcome.value, new if changed is None else changed.content, report


def by_git(folder: Path, old: bytes, side: bytes, new: bytes) -> bytes | None:
    """git's 3-way merge of one file; None for a conflict."""
    for name, text in (("ours", new), ("base", old), ("theirs", side)):
        (folder / name).write_bytes(text)
    done = subprocess.run(
        ["git", "merge-file", "-p", "ours", "base", "theirs"],
        cwd=folder, env=ENVIRONMENT, capture_output=True,
    )  # fmt: skip
    return done.stdout if done.returncode == 0 else None


def judge(mark: str, before: bytes, after: bytes | None, new_scopes: set[str]) -> str:
    """What a result is worth."""
    if after is None:
        return "refused"
    old, new = scope_of(before, mark), scope_of(after, mark)
    if new is None:
        return "does not parse"
    if old == new:
        return "right"
    return "wrong" if old in new_scopes else "moved"


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--count", type=int, default=5000)
    options.add_argument("--seed", type=int, default=11)
    options.add_argument("--any", action="store_true", help="all paths")
    options.add_argument("--json", type=Path)
    chosen = options.parse_args()
    source = random.Random(chosen.seed)
    tables = {"dsv4port": Counter[str](), "git": Counter[str]()}
    rows = []
    seconds = 0.0
    with tempfile.TemporaryDirectory() as name:
        per_step = -(-chosen.count // len(STEPS))
        done = 0
        for old_pin, new_pin in STEPS:
            files = [
                (path, old, new)
                for path, old, new in changed_files(old_pin, new_pin, chosen.any)
                if statements(old)
            ]
            scopes = {path: all_scopes(new) for path, _, new in files}
            for number in range(min(per_step, chosen.count - done)):
                path, old, new = source.choice(files)
                mark = f"dsv4port_mark_{number}"
                made = make_edit(old, source, mark)
                assert made is not None
                side, diff = made
                started = time.perf_counter()
                outcome, result, report = by_dsv4port(path, diff, old, new)
                seconds += time.perf_counter() - started
                verdicts = {
                    "dsv4port": judge(mark, side, result, scopes[path])
                    + (" (review)" if report.review and result is not None else ""),
                    "git": judge(mark, side, by_git(Path(name), old, side, new), scopes[path]),
                }
                for engine, verdict in verdicts.items():
                    tables[engine][verdict] += 1
                rows.append({"pins": f"{old_pin} {new_pin}", "path": path, "outcome": outcome,
                             "old": report.old_scope, "new": report.new_scope,
                             "reason": report.reason, "review": report.review,
                             "diff": diff.decode("utf-8", "replace"), **verdicts})  # fmt: skip
                done += 1
    print(f"{done} edits, {seconds:.1f} s in dsv4port")
    for engine, table in tables.items():
        print(f"{engine}: " + ", ".join(f"{what} {count}" for what, count in table.most_common()))
    for row in rows:
        if row["dsv4port"].startswith("wrong"):
            print(f"WRONG {row['pins']} {row['path']} {row['old']} -> {row['new']}")
    if chosen.json:
        chosen.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
