"""Small projects with a small upstream, made the way real ones are: by tar, git and YAML.

Nothing here uses the package under test to make its input, so that a defect cannot hide itself:
trees are hashed by git, patches written by ``git format-patch``, archives packed by ``tarfile``.

    project = demo_project(tmp_path)           # two pins, two patchsets, the stack `demo`
    project.run("fetch", "--all")              # the real program, as a process
    project.run("lock", "demo")
    result = project.run("apply", "demo", "--json")
    assert result.code == 0 and result.json["outcome"] == "published"
"""

from __future__ import annotations

import copy
import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SOURCE_ROOT = Path(__file__).resolve().parents[2]
"""The repository of the package under test."""


@dataclass(frozen=True)
class Executable:
    """A file with the executable bit."""

    content: bytes


@dataclass(frozen=True)
class Link:
    """A symbolic link."""

    target: str


Files = Mapping[str, "bytes | Executable | Link"]
"""A tree: path to content."""


@dataclass(frozen=True)
class Change:
    """One commit to make a patch of: a value of None in ``files`` deletes the path."""

    subject: str
    files: Mapping[str, bytes | Executable | Link | None]
    body: str = ""
    author: str = "Ada Lovelace <ada@example.org>"
    date: str = "1767225600 +0200"


@dataclass(frozen=True)
class Result:
    """A finished run of the program."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one JSON object on standard output; fails when there is anything else."""
        assert self.out.count("\n") == 1 and self.out.endswith("\n"), self
        answer = json.loads(self.out)
        assert isinstance(answer, dict)
        return answer


def git(folder: Path, *arguments: str, stdin: bytes | None = None, **environment: str) -> str:
    """Run git in `folder`, untouched by the machine's configuration; returns its output."""
    fixed = {
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "Ada Lovelace",
        "GIT_AUTHOR_EMAIL": "ada@example.org",
        "GIT_AUTHOR_DATE": "1767225600 +0000",
        "GIT_COMMITTER_NAME": "Test",
        "GIT_COMMITTER_EMAIL": "test@example.org",
        "GIT_COMMITTER_DATE": "1767225600 +0000",
    }
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    done = subprocess.run(
        ["git", "-c", "core.autocrlf=false", "-c", "core.quotePath=false", *arguments],
        cwd=folder,
        env={**inherited, **fixed, **environment},
        input=stdin,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, (arguments, done.stderr.decode("utf-8", "replace"))
    return done.stdout.decode("utf-8", "surrogateescape").rstrip("\n")


def write_files(folder: Path, files: Mapping[str, bytes | Executable | Link | None]) -> None:
    """Write (or with None delete) files below `folder`; emptied folders go, as with git."""
    for name, content in files.items():
        path = folder / name
        if path.is_symlink() or path.exists():
            path.unlink()
        if content is None:
            while path.parent != folder and not any(path.parent.iterdir()):
                path = path.parent
                path.rmdir()
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Link):
            path.symlink_to(content.target)
        elif isinstance(content, Executable):
            path.write_bytes(content.content)
            path.chmod(0o755)
        else:
            path.write_bytes(content)


def after(files: Files, *changes: Change) -> dict[str, bytes | Executable | Link]:
    """The tree that `changes` make of `files`."""
    merged: dict[str, bytes | Executable | Link | None] = dict(files)
    for change in changes:
        merged.update(change.files)
    return {name: content for name, content in merged.items() if content is not None}


def tree_id(files: Files) -> str:
    """The id that git gives a tree with these files."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        git(folder, "init", "--quiet")
        write_files(folder, files)
        git(folder, "add", "--all", "--force")
        return git(folder, "write-tree")


def make_repository(folder: Path, files: Files, message: str = "base") -> str:
    """A repository in `folder` with one commit of these files; returns the commit's id."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    write_files(folder, files)
    git(folder, "add", "--all", "--force")
    git(folder, "commit", "--quiet", "--message", message)
    return git(folder, "rev-parse", "HEAD")


def make_patches(base: Files, changes: Sequence[Change]) -> dict[str, bytes]:
    """The patches of `changes` on top of `base` by file name, as ``git format-patch`` has them."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "repository")
        make_repository(folder, base)
        for change in changes:
            commit(folder, change)
        git(
            folder, "format-patch", "--quiet", "--full-index", "--binary", "-M", "--zero-commit",
            "--keep-subject", f"-{len(changes)}", "--output-directory", str(Path(name, "patches")),
        )  # fmt: skip
        found = sorted(Path(name, "patches").iterdir())
        return {path.name: path.read_bytes() for path in found}


def commit(folder: Path, change: Change) -> str:
    """Commit a change in a repository, and return the commit's id."""
    write_files(folder, change.files)
    gone = [path for path, content in change.files.items() if content is None]
    if gone:
        git(folder, "update-index", "--force-remove", "--", *gone)
    git(folder, "add", "--force", "--", *(path for path in change.files if path not in gone))
    name, _, mail = change.author.rstrip(">").rpartition(" <")
    message = f"{change.subject}\n\n{change.body}".rstrip("\n") + "\n"
    git(
        folder, "commit", "--quiet", "--cleanup=verbatim", "--file=-", stdin=message.encode(),
        GIT_AUTHOR_NAME=name, GIT_AUTHOR_EMAIL=mail, GIT_AUTHOR_DATE=change.date,
    )  # fmt: skip
    return git(folder, "rev-parse", "HEAD")


def pack_sdist(folder: Path, name: str, version: str, files: Files) -> Path:
    """Pack a source distribution into `folder`: ``<name>-<version>.tar.gz``, the same each time."""
    folder.mkdir(parents=True, exist_ok=True)
    top = f"{name}-{version}"
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, content in sorted(files.items()):
            member = tarfile.TarInfo(f"{top}/{path}")
            member.mtime = 1767225600
            data = b""
            if isinstance(content, Link):
                member.type, member.linkname = tarfile.SYMTYPE, content.target
            else:
                data = content.content if isinstance(content, Executable) else content
                member.mode = 0o755 if isinstance(content, Executable) else 0o644
                member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    file = folder / f"{top}.tar.gz"
    with file.open("wb") as stream, gzip.GzipFile("", "wb", 6, stream, 0) as packed:
        packed.write(raw.getvalue())
    return file


@dataclass
class SyntheticProject:
    """A project with everything it needs beside it, all below `base`.

    Attributes:
        pins: name to what ``manifests/pins.yaml`` says of it; change, then `write_pins`.
        trees: name of a pin to its files.
        environment: the environment of the program; change what a test needs changed.
    """

    base: Path
    pins: dict[str, dict[str, Any]] = field(default_factory=dict)
    trees: dict[str, dict[str, bytes | Executable | Link]] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for folder in (self.root, self.archives, self.home):
            folder.mkdir(parents=True, exist_ok=True)
        self.environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(SOURCE_ROOT),
            "PYTHONDONTWRITEBYTECODE": "1",
            "LC_ALL": "C.UTF-8",
            "HOME": str(self.home),
            "DSV4PORT_CACHE": str(self.cache),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": self.archives.as_uri(),
            "PIP_RETRIES": "0",
        }

    @property
    def root(self) -> Path:
        """The project's folder."""
        return self.base / "project"

    @property
    def archives(self) -> Path:
        """Where sdists lie, and the only place that the program finds them in."""
        return self.base / "archives"

    @property
    def cache(self) -> Path:
        """The cache of downloads and imports."""
        return self.base / "cache"

    @property
    def home(self) -> Path:
        """The home folder of the program's user; empty."""
        return self.base / "home"

    @property
    def checkout(self) -> Path:
        """The default checkout."""
        return self.root / "vendor" / "vllm"

    def copy(self, base: Path) -> SyntheticProject:
        """A copy of the project, its cache and its checkout in another folder."""
        shutil.copytree(self.base, base, symlinks=True, dirs_exist_ok=True)
        return SyntheticProject(base, copy.deepcopy(self.pins), dict(self.trees))

    def run(self, *arguments: str, cwd: Path | None = None, **environment: str) -> Result:
        """Run the program in the project's folder (or `cwd`) and wait for its end."""
        done = subprocess.run(
            [sys.executable, "-m", "dsv4port", *arguments],
            cwd=cwd or self.root,
            env={**self.environment, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=120,
            check=False,
        )
        return Result(
            done.returncode,
            done.stdout.decode("utf-8", "surrogateescape"),
            done.stderr.decode("utf-8", "surrogateescape"),
        )

    def succeed(self, *arguments: str) -> Result:
        """Run the program and insist on exit code 0."""
        result = self.run(*arguments)
        assert result.code == 0, result
        return result

    def add_pin(self, name: str, files: Files, *, version: str | None = None) -> Path:
        """Pack an sdist of these files and record it as a pin; returns the archive."""
        version = version or name.removeprefix("v")
        archive = pack_sdist(self.archives, "vllm", version, files)
        self.pins[name] = {
            "sdist": {
                "name": "vllm",
                "version": version,
                "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
                "tree": tree_id(files),
            }
        }
        self.trees[name] = dict(files)
        self.write_pins()
        return archive

    def write_pins(self) -> None:
        """Write ``manifests/pins.yaml`` from `pins`."""
        write_yaml(self.root / "manifests" / "pins.yaml", {"format": 1, "pins": self.pins})

    def add_patchset(
        self,
        name: str,
        pin: str,
        changes: Sequence[Change],
        *,
        base: Files | None = None,
        **manifest: Any,
    ) -> list[str]:
        """Make a patchset with one series.

        Parameters:
            base: what the changes are made on; by default the pin's own tree.
            manifest: further keys of ``patchset.yaml``.

        Returns:
            The names of the patch files.
        """
        patches = make_patches(self.trees[pin] if base is None else base, changes)
        folder = self.root / "patchsets" / name
        write_yaml(
            folder / "patchset.yaml",
            {
                "format": 1,
                "name": name,
                "title": f"Patchset {name}",
                "why": f"To try {name}.",
                "origin": {"written": "here"},
                "series": {pin: pin},
                **manifest,
            },
        )
        self.write_series(name, pin, patches)
        return list(patches)

    def write_series(self, patchset: str, pin: str, patches: Mapping[str, bytes]) -> None:
        """Write the patch files of a series and the series file."""
        folder = self.root / "patchsets" / patchset / pin
        folder.mkdir(parents=True, exist_ok=True)
        for file, data in patches.items():
            (folder / file).write_bytes(data)
        (folder / "series").write_text("".join(f"{file}\n" for file in patches))

    def add_stack(self, name: str, pin: str, patchsets: Iterable[str]) -> None:
        """Write a stack's manifest."""
        write_yaml(
            self.root / "manifests" / "stacks" / f"{name}.yaml",
            {
                "format": 1,
                "name": name,
                "title": f"Stack {name}",
                "pin": pin,
                "target": "test",
                "patchsets": list(patchsets),
            },
        )


def write_yaml(path: Path, content: Mapping[str, Any]) -> None:
    """Write a manifest. JSON is YAML, and every text in it is quoted."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


WORKER = b'''"""A worker."""


class Worker:
    def load(self, model):
        self.model = model
        self.ready = True
        return model

    def unload(self):
        self.model = None
        self.ready = False


class SpareWorker:
    def load(self, model):
        self.model = model
        self.ready = True
        return model

    def unload(self):
        self.model = None
        self.ready = False


def make_worker(kind):
    if kind == "spare":
        return SpareWorker()
    return Worker()
'''

CONFIG = b'''"""Configuration."""

MAX_BATCH = 64
MAX_TOKENS = 8192


class CacheConfig:
    block_size = 16

    def blocks(self, tokens):
        return -(-tokens // self.block_size)
'''

KERNEL = b"""#include <cuda.h>

__global__ void scale(float *x, float factor, int n) {
  int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at < n) {
    x[at] = x[at] * factor;
  }
}
"""

DEMO_FILES: dict[str, bytes | Executable | Link] = {
    ".gitignore": b"*.log\nbuild/\n",
    "PKG-INFO": b"Metadata-Version: 2.1\nName: vllm\nVersion: 1.0.0\n",
    "README.md": b"# A small upstream\r\n\r\nWith Windows line ends.\r\n",
    "csrc/scale.cu": KERNEL,
    "docs/index.md": Link("../README.md"),
    "tools/run.sh": Executable(b"#!/bin/sh\nexec python -m vllm\n"),
    "vllm/__init__.py": b'__version__ = "1.0.0"\n',
    "vllm/config.py": CONFIG,
    "vllm/data.bin": bytes(range(256)),
    "vllm/ignored.log": b"an upstream file that upstream's ignore rules cover\n",
    "vllm/worker.py": WORKER,
}
"""The tree of the pin v1.0.0."""

NEXT_FILES: dict[str, bytes | Executable | Link] = {
    **DEMO_FILES,
    "vllm/__init__.py": b'__version__ = "1.1.0"\n',
    "vllm/config.py": CONFIG.replace(
        b"MAX_BATCH = 64\n", b"MAX_BATCH = 128\nMAX_TOKENS_HARD = 9\n"
    ),
    "vllm/worker.py": WORKER.replace(b"class Worker:", b"LIMIT = 4\nSLACK = 2\n\n\nclass Worker:"),
}
"""The tree of the pin v1.1.0: lines moved in worker.py, and others changed in config.py."""

ALPHA = (
    Change(
        "[Core] Count the loads of a worker",
        {
            "vllm/worker.py": WORKER.replace(
                b"        self.ready = True\n",
                b"        self.ready = True\n        self.loads = 1\n",
                1,
            )
        },
        body="A worker that is loaded twice is a worker that was lost.\n\nSigned-off-by: Ada",
    ),
    Change(
        "[Tools] Add a check",
        {
            "tools/check.sh": Executable(b"#!/bin/sh\nexit 0\n"),
            "vllm/extra.py": b"ANSWER = 42\n",
        },
    ),
    Change(
        "[Kernel] Skip the factor one",
        {"csrc/scale.cu": KERNEL.replace(b"at < n", b"at < n && factor != 1.0f")},
    ),
)
"""The changes of the patchset `alpha`."""

BETA = (
    Change(
        "[Bugfix][DSV4] Größere Blöcke",
        {"vllm/config.py": CONFIG.replace(b"block_size = 16", b"block_size = 32")},
        author="Zoë Müller <zoe@example.org>",
        date="1767312000 -0730",
    ),
)
"""The changes of the patchset `beta`."""


def demo_project(base: Path) -> SyntheticProject:
    """Two pins, the patchsets `alpha` and `beta`, and the stack `demo` of both; no lock yet."""
    project = SyntheticProject(base)
    project.add_pin("v1.0.0", DEMO_FILES)
    project.add_pin("v1.1.0", NEXT_FILES)
    project.add_patchset("alpha", "v1.0.0", ALPHA)
    project.add_patchset(
        "beta", "v1.0.0", BETA,
        requires=[{"patchset": "alpha", "reason": "counts first", "breaks": "the count"}],
    )  # fmt: skip
    project.add_stack("demo", "v1.0.0", ["alpha", "beta"])
    return project


def edit_alpha(project: SyntheticProject) -> None:
    """Make the second patch of `alpha` add another answer, as its author would."""
    second = Change(ALPHA[1].subject, {**ALPHA[1].files, "vllm/extra.py": b"ANSWER = 43\n"})
    project.write_series("alpha", "v1.0.0", make_patches(DEMO_FILES, [ALPHA[0], second, ALPHA[2]]))


def demo_result() -> dict[str, bytes | Executable | Link]:
    """The tree that the stack `demo` comes out as."""
    return after(DEMO_FILES, *ALPHA, *BETA)
