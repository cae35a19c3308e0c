"""A project whose series meets everything that can happen on the next pin.

The patchset `gamma` has one patch for each case; their numbers tell them apart. `delta` is written
on top of it. The pins are v1.0.0, v2.0.0 and v3.0.0; a history of
the first two, where a test wants one, is made by :func:`upstream_history`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.synthetic import (
    Change,
    Executable,
    Link,
    SyntheticProject,
    after,
    commit,
    git,
    make_repository,
)

SERVER = b'''"""A server."""

LIMIT = 4


class Server:
    def start(self, port):
        self.port = port
        self.open = True
        return port

    def stop(self):
        self.open = False

    def reload(self):
        self.stop()
        self.start(self.port)


def describe(server):
    state = "open" if server.open else "closed"
    return f"{server.port}: {state}"
'''

CLIENT = b'''"""A client."""


def connect(host):
    address = (host, 80)
    return address


def retry(times):
    for _ in range(times):
        pass
    return times


def ask(question):
    return question.upper()
'''

NOTES = b"one\r\ntwo\r\nthree\r\nfour\r\n"

BASE: dict[str, bytes | Executable | Link] = {
    "vllm/client.py": CLIENT,
    "vllm/notes.txt": NOTES,
    "vllm/server.py": SERVER,
    "vllm/util.py": b"def helper():\n    return 42\n",
}

TIMEOUT = CLIENT.replace(b"    address = (host, 80)\n", b"    address = (host, 443)\n")
ASKED = TIMEOUT.replace(
    b"    return question.upper()\n",
    b"    question = question.strip()\n    return question.upper()\n",
)
LOGGED = SERVER.replace(b"        self.open = True\n", b"        self.open = port > 0\n")
TOLD = LOGGED.replace(
    b'    return f"{server.port}: {state}"\n', b'    return f"{server.port} is {state}"\n'
)
COUNTED = TOLD.replace(b"port > 0", b"port > 1")
LAST = COUNTED.replace(b"LIMIT = 4\n", b"LIMIT = 8\n")

GAMMA = (
    Change("[A] Use the secure port", {"vllm/client.py": TIMEOUT}, body="It is 443.\n\nAck: Bo"),
    Change(
        "[B] Nur größere",
        {"vllm/server.py": LOGGED},
        author="Zoë Müller <zoe@example.org>",
        date="1767312000 -0730",
    ),
    Change(
        "[C] Say it in words, and strip",
        {"vllm/server.py": TOLD, "vllm/client.py": ASKED},
    ),
    Change("[D] Windows line", {"vllm/notes.txt": NOTES.replace(b"two", b"zwei")}),
    Change("[E] Not the first one", {"vllm/server.py": COUNTED}),
    Change("[F] A higher limit", {"vllm/server.py": LAST}),
)
"""What becomes of them on v2.0.0: A is upstream; B is in conflict; of C one part is upstream; D
moved; E depends on B; F is as it was."""

GAMMA_FILES = (
    "0001-A-Use-the-secure-port.patch",
    "0002-B-Nur-gr-ere.patch",
    "0003-C-Say-it-in-words-and-strip.patch",
    "0004-D-Windows-line.patch",
    "0005-E-Not-the-first-one.patch",
    "0006-F-A-higher-limit.patch",
)

NEVER = [{"path": "vllm/util.py", "contains": "def helper", "why": "delta calls it"}]
"""A precondition that does not hold from v2.0.0 on."""

NEW_SERVER = SERVER.replace(b"        self.open = True\n", b"        self.open = bool(port)\n")
NEW_CLIENT = ASKED.replace(b'"""A client."""\n', b'"""A client."""\n\nimport os\n')

NEXT: dict[str, bytes | Executable | Link] = {
    "vllm/client.py": NEW_CLIENT,
    "vllm/notes.txt": b"zero\r\n" + NOTES,
    "vllm/server.py": NEW_SERVER,
    "vllm/other.py": b"OTHER = 1\n",
    "vllm/util.py": b"def assistant():\n    return 42\n",
}

LATER: dict[str, bytes | Executable | Link] = {
    **NEXT,
    "vllm/server.py": NEW_SERVER.replace(b"bool(port)", b"bool(self.port)"),
}
"""v3.0.0: another file where B is resolved on v2.0.0."""

RESOLVED = NEW_SERVER.replace(
    b"        self.open = bool(port)\n", b"        self.open = bool(port) and port > 0\n"
)
"""What a person makes of patch B on v2.0.0."""

EXTRA = b"from vllm.util import helper\n\nANSWER = helper()\n"

DELTA = (Change("[G] A new file on top", {"vllm/extra.py": EXTRA}),)


def port_project(base: Path, **manifest: Any) -> SyntheticProject:
    """The project, both pins fetched, with the stack `both`; `manifest` is further of gamma's."""
    project = SyntheticProject(base)
    project.add_pin("v1.0.0", BASE)
    project.add_pin("v2.0.0", NEXT)
    project.add_pin("v3.0.0", LATER)
    for name, pin in project.pins.items():
        pin["git"] = {"url": "https://git.example.org/vllm.git", "tag": name}
    project.write_pins()
    project.add_patchset("gamma", "v1.0.0", GAMMA, **manifest)
    project.add_patchset("delta", "v1.0.0", DELTA, base=after(BASE, *GAMMA))
    project.add_stack("both", "v1.0.0", ["gamma", "delta"])
    project.succeed("fetch", "--all")
    return project


def upstream_history(folder: Path) -> list[str]:
    """A repository from v1.0.0 to v2.0.0 in five commits, both ends tagged; returns its commits."""
    commits = [make_repository(folder, BASE)]
    git(folder, "tag", "v1.0.0")
    for subject, files in (
        ("[Core] Something else (#100)", {"vllm/other.py": NEXT["vllm/other.py"]}),
        ("[Client] Secure port and strip (#101)", {"vllm/client.py": NEW_CLIENT}),
        ("[Server] Open means a port (#102)", {"vllm/server.py": NEW_SERVER}),
        ("[Docs] A line (#103)", {"vllm/notes.txt": NEXT["vllm/notes.txt"]}),
        ("[Util] Another name (#104)", {"vllm/util.py": NEXT["vllm/util.py"]}),
    ):
        commits.append(commit(folder, Change(subject, files)))
    git(folder, "tag", "v2.0.0")
    return commits


def files_below(folder: Path) -> dict[str, bytes]:
    """Every file of a project but its state, by path: what a command may change."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".dsv4port" not in path.parts
    }


def ported(project: SyntheticProject, *names: str, onto: str = "v2.0.0") -> dict[str, Any]:
    """The rows of a port's answer for a pin, by patchset, with `patches` by file."""
    answer = project.run("port", *names, "--onto", onto, "--no-drift", "--json").json
    return by_name(answer["pins"][0])


def by_name(pin: dict[str, Any]) -> dict[str, Any]:
    """The patchsets of one pin of an answer by name, their patches by file."""
    return {
        row["patchset"]: {**row, "patches": {one["file"]: one for one in row["patches"]}}
        for row in pin["patchsets"]
    }


def applied(project: SyntheticProject, patchsets: list[str], pin: str) -> Path:
    """The checkout after a strict apply of what was ported."""
    project.add_stack("result", pin, patchsets)
    project.succeed("lock", "result")
    project.succeed("apply", "result")
    return project.checkout
