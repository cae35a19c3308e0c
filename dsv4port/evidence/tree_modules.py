"""Modules of the patched tree, imported from the stack's own files: its arithmetic, not a copy.

The series is applied in memory to the pin in the cache, so no checkout is needed, and what is
imported is what the lock says by hash. Only the modules named here are run. They import nothing
but the standard library and each other.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

from dsv4port.apply.engine import Engine, SeriesConflictError
from dsv4port.apply.inputs import read_patch_files
from dsv4port.errors import BadInputError, StaleLockError
from dsv4port.evidence.device_limits import default_limit
from dsv4port.git.pack import Rehearsal
from dsv4port.git.process import Git
from dsv4port.git.reader import ObjectReader
from dsv4port.manifest.lock import Lock, load_lock
from dsv4port.manifest.stack import resolve_stack
from dsv4port.quick_dataclass import dataclass
from dsv4port.upstream.pins import ensure_pin
from dsv4port.upstream.progress import NO_PROGRESS, Progress

if TYPE_CHECKING:
    from dsv4port.manifest.project import Project
    from dsv4port.upstream.cache import Cache

STAGING = "vllm.distributed.device_communicators.car_graph_staging"
MODE = "vllm.distributed.device_communicators.car_capture_mode"
POLICY = "vllm.models.deepseek_v4.dsv4port_policy"
NEEDED = (STAGING, MODE, POLICY)
_COMMUNICATORS = "vllm/distributed/device_communicators"


@dataclass(frozen=True, slots=True)
class TreeModules:
    """The three modules of one stack, and what vLLM's own files say of custom all-reduce.

    Parameters:
        platform: ``cuda`` or ``musa``.
        limits: text of the file that has the limits per device; read, never imported.
        default_limit: bytes, where that has none.
    """

    stack: str
    platform: str
    tree: str
    staging: Any
    mode: Any
    policy: Any
    limits: str
    default_limit: int

    @contextmanager
    def importable(self) -> Iterator[None]:
        """Let the modules import each other by their dotted names while the body runs."""
        with _stand_ins({STAGING: self.staging, MODE: self.mode, POLICY: self.policy}):
            yield


def load_tree_modules(
    project: Project,
    stack_name: str,
    cache: Cache,
    *,
    platform: str | None = None,
    progress: Progress = NO_PROGRESS,
) -> TreeModules:
    """Apply a stack in memory and import what it brings.

    Parameters:
        platform: None means the stack's target.

    Raises:
        BadInputError: the stack does not bring the modules, or its contract lacks the platform.
        ConflictError, StaleLockError: it does not apply, or is not what its lock says.
    """
    stack, lock = resolve_stack(project, stack_name), load_lock(project, stack_name)
    pin = ensure_pin(stack.pin, cache, source=lock.source.value, progress=progress)
    with ObjectReader(Git(pin.store)) as reader:
        engine = Engine(reader, Rehearsal(), pin.commit)
        items = [file.item(project) for file in read_patch_files(stack)]
        engine.expect(items)
        for item in items:
            if not engine.apply(item).outcome.applied:
                raise SeriesConflictError(engine.report())
        if engine.report().tree != lock.tree:
            raise StaleLockError(
                f"stack {stack_name} is not what its lock says",
                fix=f"review the change, then run `dsv4port lock {stack_name}`",
            )
        contents = {name: _content(engine, lock, stack_name, name) for name in NEEDED}
        limits, reduce = (
            _upstream(reader, pin.commit, f"{_COMMUNICATORS}/{name}.py")
            for name in ("all_reduce_utils", "custom_all_reduce")
        )
    with _stand_ins({}):
        loaded = {name: _run(name, contents[name]) for name in NEEDED}
    # The contract takes plain text only, as vLLM's own platform gives it.
    chosen = str(platform or stack.stack.target)
    accepted = loaded[POLICY]._BACKENDS
    if chosen not in accepted:
        raise BadInputError(
            f"the contract of {stack_name} is not for the platform {chosen}",
            fix=f"name one with --platform: {' or '.join(accepted)}",
        )
    return TreeModules(
        stack_name, chosen, lock.tree, loaded[STAGING], loaded[MODE], loaded[POLICY],
        limits, default_limit(reduce),
    )  # fmt: skip


def _upstream(reader: ObjectReader, commit: str, path: str) -> str:
    found = reader.find(f"{commit}:{path}")
    if found is None:
        raise BadInputError(f"the pin has no {path}", fix="name a stack on another pin")
    return found[2].decode("utf-8", "replace")


def _content(engine: Engine, lock: Lock, stack: str, name: str) -> bytes:
    path = name.replace(".", "/").encode() + b".py"
    file = next((one for one in lock.files if one.path == path), None)
    if file is None or file.after is None:
        raise BadInputError(
            f"{stack} does not bring {path.decode()}, which has the arithmetic of the ladder",
            fix="name a stack with the patchset graph-staging",
        )
    content = engine.content(file.after)
    if hashlib.sha256(content).hexdigest() != file.sha256:
        raise StaleLockError(
            f"{path.decode()} is not what the lock of {stack} says",
            fix=f"review the change, then run `dsv4port lock {stack}`",
        )
    return content


def _run(name: str, content: bytes) -> ModuleType:
    module = ModuleType(name)
    # Registered before it runs: dataclasses look their module up there.
    sys.modules[name] = module
    exec(compile(content, f"{name.replace('.', '/')}.py", "exec"), module.__dict__)  # noqa: S102
    return module


@contextmanager
def _stand_ins(modules: Mapping[str, ModuleType]) -> Iterator[None]:
    """Packages around the modules in `sys.modules`, and nothing left of them afterwards."""
    saved = {name: one for name, one in sys.modules.items() if name.partition(".")[0] == "vllm"}
    for name in saved:
        del sys.modules[name]
    try:
        for name in NEEDED:
            parts = name.split(".")
            for end in range(1, len(parts)):
                package = ".".join(parts[:end])
                if package not in sys.modules:
                    made = ModuleType(package)
                    made.__path__ = []
                    sys.modules[package] = made
        sys.modules.update(modules)
        yield
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
            del sys.modules[name]
        sys.modules.update(saved)
