"""Runs inside a built environment: imports the package and its extensions, compares schemas.

Standard library only, and no import of what it stands beside. One JSON object comes in on standard
input; one a line goes out on standard output: ``{"begin": subject}`` before something that may take
the process down, and a row after it. The last line is ``{"end": ...}``.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import importlib.machinery
import importlib.metadata
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

OUT = os.fdopen(os.dup(1), "w", encoding="utf-8")


def say(**fields: Any) -> None:
    OUT.write(json.dumps(fields) + "\n")
    OUT.flush()


def row(check: str, subject: str, outcome: str, detail: str = "") -> None:
    say(check=check, subject=subject, outcome=outcome, detail=detail)


def main() -> None:
    asked = json.load(sys.stdin)
    # What imported code prints is no row.
    os.dup2(2, 1)
    package = import_package(asked["package"], Path(asked["source"]))
    extensions = []
    if package is not None:
        extensions = import_extensions(asked["package"], package, asked["extensions"])
    compare_schemas(asked["schemas"], asked["extensions"])
    packages = sorted(
        f"{one.metadata['Name']}=={one.version}" for one in importlib.metadata.distributions()
    )
    say(end=True, extensions=extensions, packages=packages)


def import_package(name: str, source: Path) -> Path | None:
    say(begin=name)
    try:
        module = importlib.import_module(name)
    except BaseException as error:
        row("package", name, "fails", f"{type(error).__name__}: {error}")
        return None
    file = Path(module.__file__ or "").resolve()
    if source.resolve() not in file.parents:
        row("package", name, "fails", f"it is imported from {file}, not from {source}")
        return None
    version = getattr(module, "__version__", "no version")
    row("package", name, "holds", f"{version} from {file.parent}")
    return file.parent


def import_extensions(name: str, folder: Path, wanted: bool) -> list[dict[str, Any]]:
    found = []
    suffixes = sorted(importlib.machinery.EXTENSION_SUFFIXES, key=len, reverse=True)
    for file in sorted(folder.rglob("*.so")):
        suffix = next((one for one in suffixes if file.name.endswith(one)), ".so")
        parts = file.relative_to(folder).parent.parts
        module = ".".join([name, *parts, file.name[: -len(suffix)]])
        say(begin=module)
        outcome, detail = load(module, file)
        row("extension", module, outcome, detail)
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        found.append({"module": module, "path": str(file), "sha256": digest,
                      "size": file.stat().st_size})  # fmt: skip
    if wanted and not found:
        row("extension", name, "fails", "the build left no native extension")
    if not wanted and not found:
        row("extension", name, "not-checked", "the target builds no native code")
    return found


def load(module: str, file: Path) -> tuple[str, str]:
    try:
        if file.name.startswith("lib"):
            ctypes.CDLL(str(file))
            return "holds", "loaded; a library, not a module"
        try:
            importlib.import_module(module)
            return "holds", "imported"
        except ImportError as error:
            if "does not define module export function" not in str(error):
                raise
            torch: Any = importlib.import_module("torch")
            torch.ops.load_library(str(file))
            return "holds", "loaded; it registers operators and is no module"
    except BaseException as error:
        # Without a driver there is nothing to load it with; that is no pass, and no fault of it.
        if "libcuda.so.1" in str(error) or "libmusa.so" in str(error):
            return "not-checked", f"this machine has no driver: {error}"
        return "fails", f"{type(error).__name__}: {error}"


def compare_schemas(declared: list[dict[str, Any]], native: bool) -> None:
    if not native or not declared:
        reason = "the target builds no native code" if not native else "no source declares any"
        row("schema", "operators", "not-checked", reason)
        return
    say(begin="operators")
    try:
        torch: Any = importlib.import_module("torch")
        names = torch._C._dispatch_get_all_op_names()
        parse, get = torch._C.parse_schema, torch._C._get_schema
    except BaseException as error:
        row("schema", "operators", "fails", f"{type(error).__name__}: {error}")
        return
    same = 0
    for name in names:
        ops = [op for op in declared if matches(op, name)]
        if not ops:
            continue
        base, _, overload = name.partition(".")
        registered = str(get(base, overload))
        space = name.partition("::")[0]
        # Devices may declare one name differently; one of them was built.
        if any(as_declared(op, space, registered, parse) for op in ops):
            same += 1
        else:
            where = " and ".join(f"{op['file']}:{op['line']} {op['schema']}" for op in ops)
            row("schema", name, "fails", f"registered is {registered}, declared {where}")
    missing = [op for op in declared if not any(matches(op, name) for name in names)]
    for op in missing:
        if op["required"]:
            place = f"{op['file']}:{op['line']}"
            row("schema", op["name"], "fails", f"{place} declares it, and it is not registered")
    row("schema", "operators", "holds",
        f"{same} as declared; {len(missing)} of {len(declared)} not in this build")  # fmt: skip


def as_declared(op: dict[str, Any], space: str, registered: str, parse: Any) -> bool:
    # Without a signature C++ inferred it; there is nothing to compare.
    if "(" not in op["schema"]:
        return True
    return plain(str(parse(f"{space}::{op['schema']}"))) == plain(registered)


ALIAS = re.compile(r"\((\$?\w+)(!?)(?: -> ?)?\)")


def plain(schema: str) -> str:
    """A schema with its alias sets numbered: ``Tensor!`` and ``Tensor(a!)`` say the same."""
    names: dict[str, int] = {}
    return ALIAS.sub(lambda found: f"({names.setdefault(found[1], len(names))}{found[2]})", schema)


def matches(op: dict[str, Any], name: str) -> bool:
    space, _, rest = name.partition("::")
    if rest != op["name"]:
        return False
    return space.endswith(op["namespace"]) if op["by_ending"] else space == op["namespace"]


if __name__ == "__main__":
    main()
