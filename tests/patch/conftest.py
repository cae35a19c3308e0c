"""Real git as the oracle: hermetic repositories, and random trees as hypothesis strategies."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import strategies as st

# Path to (mode, content).
Tree = Mapping[bytes, tuple[int, bytes]]


class Git:
    """One repository without any configuration of the user or system."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(root),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_AUTHOR_NAME": "A",
            "GIT_AUTHOR_EMAIL": "a@example.com",
            "GIT_COMMITTER_NAME": "C",
            "GIT_COMMITTER_EMAIL": "c@example.com",
            "GIT_COMMITTER_DATE": "1700000000 +0000",
            "LC_ALL": "C",
            "TZ": "UTC",
        }
        root.mkdir(exist_ok=True)
        self("init", "-q")

    def __call__(self, *arguments: str | bytes, stdin: bytes = b"", check: bool = True) -> bytes:
        done = subprocess.run(
            ["git", *arguments],
            cwd=self.root,
            env=self.environment,
            input=stdin,
            capture_output=True,
            check=False,
        )
        if check and done.returncode:
            raise AssertionError(f"git {arguments} failed: {done.stderr!r}")
        return done.stdout

    def commits(self, *trees: Tree) -> None:
        """Make one commit per tree, each the parent of the next: refs/heads/t0, t1, ..."""
        stream = []
        for number, tree in enumerate(trees):
            stream.append(b"commit refs/heads/t%d\nmark :%d\n" % (number, number + 1))
            stream.append(b"committer C <c@example.com> 1700000000 +0000\ndata 1\nx\n")
            if number:
                stream.append(b"from :%d\n" % number)
            stream.append(b"deleteall\n")
            for path, (mode, content) in tree.items():
                quoted = b'"' + b"".join(b"\\%03o" % code for code in path) + b'"'
                if mode == 0o160000:
                    stream.append(b"M 160000 %s %s\n" % (content, quoted))
                else:
                    stream.append(b"M %o inline %s\n" % (mode, quoted))
                    stream.append(b"data %d\n%s\n" % (len(content), content))
        self("fast-import", "--quiet", "--force", stdin=b"".join(stream))

    def diff(self, *options: str) -> bytes:
        """The diff from t0 to t1."""
        return self("diff-tree", "-p", *options, "t0", "t1")


@pytest.fixture(scope="session")
def git(tmp_path_factory: pytest.TempPathFactory) -> Git:
    """One repository for a whole test run; refs are overwritten."""
    return Git(tmp_path_factory.mktemp("git") / "repository")


_COMPONENTS = [
    *(b"a", b"b c", b"x.py", b"\xc3\xbcn\xc3\xaf", b"latin\xe9", b"t\tab", b'q"uote', b"b/b"),
    *(b"back\\slash", b"trailing ", b"dev", b"line\nfeed", b".gitignore", b"esc\x1b[31m"),
]
_line = st.sampled_from(
    [
        b"",
        b"x",
        b"-",
        b"--",
        b"---",
        b"-- ",
        b"+",
        b"++ b/x",
        b" y",
        b"\\ No",
        b"@@ -1 +1 @@",
        b"diff --git a/x b/x",
        b"caf\xe9",
        b"caf\xc3\xa9",
        b"def f():",
        b"    return 1",
        b"\r",
        b"z\x0c",
    ]
)
_text = st.builds(
    lambda lines, ends, last: b"".join(
        line + end for line, end in zip(lines, ends, strict=False)
    ).removesuffix(b"" if last else b"\n"),
    st.lists(_line, max_size=24),
    st.lists(st.sampled_from([b"\n", b"\n", b"\n", b"\r\n"]), min_size=24, max_size=24),
    st.booleans(),
)
_binary = st.binary(max_size=400).map(lambda content: b"\0" + content)
_blob = st.tuples(st.sampled_from([0o100644, 0o100755]), st.one_of(_text, _text, _binary))
_entry = st.one_of(
    *(_blob, _blob, _blob, _blob),
    st.tuples(st.just(0o120000), st.sampled_from([b"target", b"a\nb", b"caf\xe9"])),
    st.tuples(st.just(0o160000), st.sampled_from([b"%040x" % 7, b"%040x" % 8])),
)
_path = st.builds(
    lambda top, name: (b"d/" if top else b"") + name.replace(b"/", b"_/"),
    st.booleans(),
    st.sampled_from(_COMPONENTS),
)
_tree = st.dictionaries(_path, _entry, max_size=5)


@st.composite
def _tree_pairs(draw: st.DrawFn) -> tuple[Tree, Tree]:
    """Two trees that share much, so that edits, renames and mode changes come up."""
    old = draw(_tree.filter(bool))
    new = dict(draw(st.dictionaries(_path, _entry, max_size=2)))
    for path, (mode, content) in old.items():
        fate = draw(
            st.sampled_from(["edit", "edit", "edit", "keep", "mode", "move", "copy", "drop"])
        )
        if fate == "edit" and mode in (0o100644, 0o100755):
            lines = content.split(b"\n")
            for at in draw(st.lists(st.integers(0, len(lines) - 1), min_size=1, max_size=3)):
                lines[at] = draw(st.sampled_from([b"", b"new", b"--", b"\r", b"two\nlines"]))
            content = b"\n".join(lines)
        if fate == "mode" and mode in (0o100644, 0o100755):
            mode ^= 0o111
        if fate in ("move", "copy"):
            new[b"moved/" + path.replace(b"/", b"_")] = (mode, content)
        if fate not in ("move", "drop"):
            new[path] = (mode, content)
    return old, new


@pytest.fixture(scope="session")
def strategies() -> SimpleNamespace:
    """The strategies of this file; ``tree_pairs`` gives (old, new)."""
    return SimpleNamespace(tree_pairs=_tree_pairs(), text=_text)
