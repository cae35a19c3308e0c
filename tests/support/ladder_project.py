"""A small project whose stack brings the real modules of graph staging, and little else.

The modules are taken out of the patch files with ``git apply``, so that tests of the ladder need
neither vLLM's tree nor a network.
"""

from __future__ import annotations

from pathlib import Path

from support.synthetic import DEMO_FILES, SOURCE_ROOT, Change, SyntheticProject, git

COMMUNICATORS = "vllm/distributed/device_communicators"
MODULES = (
    f"{COMMUNICATORS}/car_graph_staging.py",
    f"{COMMUNICATORS}/car_capture_mode.py",
    "vllm/models/deepseek_v4/dsv4port_policy.py",
)

LIMITS = b"""MiB = 1024 * 1024

CUSTOM_ALL_REDUCE_MAX_SIZES = {
    "9.0": {2: 64 * MiB, 8: MiB // 4},
    "10.0": {8: 1 * MiB},
}
"""

CUSTOM_ALL_REDUCE = b"""class CustomAllreduce:
    def __init__(self, group, device, max_size=8192 * 1024, symm_mem_enabled=False):
        self.max_size = max_size
"""


def real_modules(folder: Path) -> dict[str, bytes]:
    """The modules as the series of graph-staging for v0.26.0 leaves them."""
    folder.mkdir()
    git(folder, "init", "--quiet")
    series = SOURCE_ROOT / "patchsets" / "graph-staging" / "v0.26.0"
    names = [line for line in (series / "series").read_text().splitlines() if line[:1] not in "#"]
    include = [f"--include={path}" for path in MODULES]
    for name in names:
        git(folder, "apply", "--allow-empty", *include, str(series / name))
    return {path: (folder / path).read_bytes() for path in MODULES}


def ladder_project(base: Path) -> SyntheticProject:
    """The stacks `on-cuda` and `on-musa` with the modules, and `without`; all locked."""
    project = SyntheticProject(base)
    files = {
        **DEMO_FILES,
        f"{COMMUNICATORS}/all_reduce_utils.py": LIMITS,
        f"{COMMUNICATORS}/custom_all_reduce.py": CUSTOM_ALL_REDUCE,
    }
    project.add_pin("v1.0.0", files)
    project.add_patchset("staging", "v1.0.0", [Change("Add", real_modules(base / "modules"))])
    project.add_patchset("other", "v1.0.0", [Change("Add", {"vllm/other.py": b"A = 1\n"})])
    for name, patchset in (("on-cuda", "staging"), ("on-musa", "staging"), ("without", "other")):
        project.add_stack(name, "v1.0.0", [patchset])
        file = project.root / "manifests" / "stacks" / f"{name}.yaml"
        target = name.removeprefix("on-") if name.startswith("on-") else "cuda"
        file.write_text(file.read_text().replace('"target": "test"', f'"target": "{target}"'))
    project.succeed("fetch", "--all")
    for name in ("on-cuda", "on-musa", "without"):
        project.succeed("lock", name)
    return project
