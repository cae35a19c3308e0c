"""Pytest plugin for the tests under `patchsets/*/tests`: which tree they run on.

The tests never import dsv4port itself. They get the patched tree as a fixture, so that the same
file runs on every pin, and on the bare pin to show that a fix test is red there.

With `--device` tests that need something else are left out, and with `--isolated` nothing but the
tree can be imported as `vllm`. `dsv4port test` gives both; plain pytest needs neither.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from dsv4port.testing.checks_in_tree import missing_packages, run_file
from dsv4port.testing.hardware import DEVICES, cuda_capability, leave_out, musa_present
from dsv4port.testing.isolation import foreign_vllm, require_tree
from dsv4port.testing.ranks import RankResult, run_two_ranks

TREE_VARIABLE = "DSV4PORT_TREE"
DEFAULT_TREE = Path("vendor") / "vllm"

MARKERS = (
    "network: needs a package index",
    "torch: needs torch",
    "gpu: needs a CUDA device; gpu(sm=90) one of that architecture",
    "musa: needs a MUSA device",
    "needs_weights: needs the checkpoint of a model",
    "fix: fails on the unpatched pin, passes on the patched tree",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--vllm-tree",
        metavar="DIR",
        help=f"the vLLM tree under test; default: ${TREE_VARIABLE}, else vendor/vllm",
    )
    parser.addoption(
        "--device", choices=DEVICES, help="leave out what this device cannot run; default: nothing"
    )
    parser.addoption("--with-network", action="store_true", help="there is a network for tests")
    parser.addoption(
        "--isolated", action="store_true", help="stop where vllm is not the tree under test"
    )


def pytest_configure(config: pytest.Config) -> None:
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    device = config.getoption("--device")
    if device == "cuda" and cuda_capability() is None:
        raise pytest.UsageError("--device cuda: torch sees no CUDA device here")
    if device == "musa" and not musa_present():
        raise pytest.UsageError("--device musa: torch_musa sees no device here")
    if config.getoption("--isolated"):
        require_tree(_isolated_tree(config))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """After the user's own selection: what that left out does not want for a device."""
    device = config.getoption("--device")
    if device is not None:
        leave_out(config, items, device=device, network=config.getoption("--with-network"))


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if not session.config.getoption("--isolated"):
        return
    origin = foreign_vllm(_isolated_tree(session.config))
    if origin is not None:
        pytest.exit(f"the tests imported vllm from {origin}, not from the tree", returncode=4)


def _isolated_tree(config: pytest.Config) -> Path:
    named = config.getoption("--vllm-tree")
    if not named:
        raise pytest.UsageError("--isolated needs --vllm-tree")
    return Path(named).resolve()


@pytest.fixture(scope="session")
def vllm_tree(request: pytest.FixtureRequest) -> Path:
    """The tree under test: `--vllm-tree`, else the environment variable, else the checkout."""
    named = request.config.getoption("--vllm-tree") or os.environ.get(TREE_VARIABLE)
    tree = Path(named) if named else request.config.rootpath / DEFAULT_TREE
    if (tree / "vllm" / "__init__.py").is_file():
        return tree.resolve()
    if named:
        pytest.fail(f"{tree} is no vLLM tree: it has no vllm/__init__.py", pytrace=False)
    pytest.skip(f"no patched tree: give --vllm-tree, or apply a stack to {DEFAULT_TREE}")


@pytest.fixture(scope="session")
def pin(vllm_tree: Path) -> str:
    """The pin's name, as `v0.26.0`, from the version that the release wrote into its tree."""
    text = (vllm_tree / "vllm" / "_version.py").read_text()
    found = re.search(r"^__version__ = version = '([^']+)'", text, re.MULTILINE)
    if found is None:
        pytest.fail("vllm/_version.py names no version", pytrace=False)
    return f"v{found.group(1)}"


@pytest.fixture(scope="session")
def tree_module(vllm_tree: Path) -> Callable[[str], ModuleType]:
    """Load one module of the tree from its file: neither vLLM nor torch is imported for it.

    A file that is not there fails the test: on the bare pin that is the red of a fix test.
    """
    loaded: dict[str, ModuleType] = {}

    def load(path: str) -> ModuleType:
        if path not in loaded:
            if not (vllm_tree / path).is_file():
                pytest.fail(f"the tree has no {path}", pytrace=False)
            loaded[path] = _load(vllm_tree / path)
        return loaded[path]

    return load


@pytest.fixture(scope="session")
def capability() -> tuple[int, int]:
    """Compute capability of the CUDA device, as (9, 0); the test is skipped where there is none."""
    found = cuda_capability()
    if found is None:
        pytest.skip("no CUDA device")
    return found


@pytest.fixture(scope="session")
def triton_interpreter() -> None:
    """Triton kernels run on the CPU, interpreted; the test is skipped without Triton."""
    if importlib.util.find_spec("triton") is None:
        pytest.skip("triton is not installed")
    if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
        pytest.fail("Triton was imported to compile: set TRITON_INTERPRET=1 first", pytrace=False)
    os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture(scope="module")
def run_checks(
    request: pytest.FixtureRequest, vllm_tree: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., dict[str, str]]:
    """Run a file of checks beside the test on the tree: each check's traceback, "" where it held.

    Further keywords are environment variables. The test is skipped where what the tree imports is
    not installed.
    """
    if missing := missing_packages():
        pytest.skip(f"not installed: {', '.join(missing)}")
    done: dict[str, dict[str, str]] = {}

    def run(file: str, **variables: str) -> dict[str, str]:
        if file not in done:
            folder = tmp_path_factory.mktemp("triton")
            done[file] = run_file(request.path.parent / file, vllm_tree, folder, **variables)
        return done[file]

    return run


@pytest.fixture
def two_ranks(tmp_path: Path) -> Callable[..., tuple[RankResult, RankResult]]:
    """Run a script in two processes that can form one group: `two_ranks(script, *arguments)`.

    Each gets torch's variables (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT), and as
    DSV4PORT_RENDEZVOUS a `file://` address for `init_process_group`, which no other program can
    take away as it could a port.
    """

    def run(script: Path, *arguments: str, timeout: float = 120.0) -> tuple[RankResult, RankResult]:
        return run_two_ranks(script, arguments, tmp_path, timeout)

    return run


def _load(path: Path) -> ModuleType:
    name = f"patched_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Registered, because pickle looks classes up by the name of their module.
    sys.modules[name] = module
    # The tree is under verification: a bytecode cache would be an untracked file in it.
    writes_bytecode = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    try:
        spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = writes_bytecode
    return module
