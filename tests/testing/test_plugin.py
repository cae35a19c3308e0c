"""The plugin's part in a run for a device: what is left out, what is isolated, the fixtures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

MARKED = """
import pytest

@pytest.mark.gpu
def test_gpu(): ...

@pytest.mark.gpu(sm=90)
def test_hopper(): ...

@pytest.mark.musa
def test_musa(): ...

@pytest.mark.needs_weights
def test_weights(): ...

@pytest.mark.network
def test_network(): ...

def test_plain(): ...
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    package = tmp_path / "tree" / "vllm"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("HERE = True\n")
    (package / "_version.py").write_text("__version__ = version = '0.26.0'\n")
    return tmp_path


def run(folder: Path, *options: str, **environment: str) -> tuple[int, str]:
    done = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
            "-p", "dsv4port.testing.plugin", "-p", "dsv4port.testing.record",
            "--result-file", "result.json", *options,
        ],
        cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def outcomes(folder: Path) -> dict[str, tuple[str, Any]]:
    document = json.loads((folder / "result.json").read_text())
    return {
        row["id"].partition("::")[2]: (row["outcome"], row["reason"]) for row in document["tests"]
    }


def test_what_the_device_lacks_is_left_out_and_told(folder: Path) -> None:
    (folder / "test_marked.py").write_text(MARKED)
    code, output = run(folder, "--device", "cpu")
    assert code == 0, output
    found = outcomes(folder)
    assert found.pop("test_plain") == ("passed", None)
    assert {name: outcome for name, (outcome, _) in found.items()} == dict.fromkeys(
        ["test_gpu", "test_hopper", "test_musa", "test_weights", "test_network"], "deselected"
    )
    assert "CUDA" in found["test_gpu"][1] and "cpu" in found["test_gpu"][1]
    assert "DSV4PORT_WEIGHTS" in found["test_weights"][1]


def test_what_the_user_did_not_select_was_not_left_out(folder: Path) -> None:
    (folder / "test_marked.py").write_text(MARKED)
    run(folder, "--device", "cpu", "-k", "weights or plain")
    assert set(outcomes(folder)) == {"test_weights", "test_plain"}


def test_weights_and_network_can_be_given(folder: Path) -> None:
    (folder / "test_marked.py").write_text(MARKED)
    run(folder, "--device", "cpu", "--with-network", DSV4PORT_WEIGHTS=str(folder))
    found = outcomes(folder)
    assert found["test_weights"][0] == found["test_network"][0] == "passed"


def test_without_a_device_nothing_is_left_out(folder: Path) -> None:
    (folder / "test_marked.py").write_text(MARKED)
    run(folder)
    assert {outcome for outcome, _ in outcomes(folder).values()} == {"passed"}


@pytest.mark.parametrize("marker", ["gpu(90)", "gpu(sm='90')", "gpu(cc=90)"])
def test_a_marker_that_nobody_understands_is_an_error(folder: Path, marker: str) -> None:
    text = f"import pytest\n@pytest.mark.{marker}\ndef test_it(): ...\n"
    (folder / "test_marked.py").write_text(text)
    # On a machine with a device the marker is read, and only there.
    (folder / "conftest.py").write_text(
        "from dsv4port.testing import plugin, hardware\n"
        "plugin.cuda_capability = hardware.cuda_capability = lambda: (9, 0)\n"
    )
    code, output = run(folder, "--device", "cuda", "-p", "conftest", PYTHONPATH=str(folder))
    assert code == 4, output
    assert "gpu(sm=90)" in output


def test_only_devices_of_the_architecture_get_the_test(folder: Path) -> None:
    (folder / "test_marked.py").write_text(
        "import pytest\n"
        "@pytest.mark.gpu(sm=90)\ndef test_one(): ...\n"
        "@pytest.mark.gpu(sm=(100, 120))\ndef test_two(): ...\n"
        "@pytest.mark.gpu\ndef test_any(capability):\n    assert capability == (9, 0)\n"
    )
    (folder / "conftest.py").write_text(
        "from dsv4port.testing import plugin, hardware\n"
        "plugin.cuda_capability = hardware.cuda_capability = lambda: (9, 0)\n"
    )
    code, output = run(folder, "--device", "cuda", "-p", "conftest", PYTHONPATH=str(folder))
    assert code == 0, output
    found = outcomes(folder)
    assert found["test_one"][0] == found["test_any"][0] == "passed"
    assert found["test_two"] == ("deselected", "needs sm_100 or sm_120; the device is sm_90")


@pytest.mark.parametrize("device", ["cuda", "musa"])
def test_a_device_that_is_not_there_is_refused(folder: Path, device: str) -> None:
    (folder / "test_plain.py").write_text("def test_it(): ...\n")
    code, output = run(folder, "--device", device, CUDA_VISIBLE_DEVICES="")
    assert code == 4, output
    assert f"--device {device}" in output


def test_isolated_takes_the_tree_and_nothing_else(folder: Path) -> None:
    (folder / "test_import.py").write_text(
        "def test_it():\n    import vllm\n    assert vllm.HERE\n"
    )
    tree = folder / "tree"
    options = ("--isolated", "--vllm-tree", str(tree))
    code, output = run(folder, *options, PYTHONPATH=str(tree))
    assert code == 0, output
    foreign = folder / "site" / "vllm"
    foreign.mkdir(parents=True)
    (foreign / "__init__.py").write_text("HERE = True\n")
    code, output = run(folder, *options, PYTHONPATH=str(foreign.parent))
    assert (code, "not the tree" in output) == (4, True), output
    code, output = run(folder, *options)
    assert (code, "would find None" in output) == (4, True), output


def test_isolated_sees_a_test_that_goes_round_it(folder: Path) -> None:
    tree, site = folder / "tree", folder / "site"
    (site / "vllm").mkdir(parents=True)
    (site / "vllm" / "__init__.py").write_text("")
    (folder / "test_import.py").write_text(
        f"import sys\ndef test_it():\n    sys.path.insert(0, {str(site)!r})\n    import vllm\n"
    )
    code, output = run(
        folder, "--isolated", "--vllm-tree", str(tree), PYTHONPATH=str(tree)
    )  # fmt: skip
    assert code == 4, output
    assert "imported vllm from" in output


RANK = """
import os, sys, time
from pathlib import Path
rank = os.environ["RANK"]
assert os.environ["WORLD_SIZE"] == "2" and os.environ["MASTER_PORT"].isdecimal()
meeting = Path(os.environ["DSV4PORT_RENDEZVOUS"].removeprefix("file://") + sys.argv[1])
if sys.argv[1] == "fail" and rank == "0":
    sys.exit(3)
if rank == "0":
    meeting.write_text("here")
while not meeting.exists():
    time.sleep(0.01)
print("rank", rank)
"""


def test_two_ranks_meet_and_do_not_hang(folder: Path) -> None:
    (folder / "rank.py").write_text(RANK)
    (folder / "test_ranks.py").write_text(
        "from pathlib import Path\n"
        "import dsv4port.testing.ranks as ranks\n"
        "ranks._GRACE = 0.5\n"
        "SCRIPT = Path(__file__).with_name('rank.py')\n"
        "def test_meet(two_ranks):\n"
        "    a, b = two_ranks(SCRIPT, 'meet')\n"
        "    assert (a.code, a.output) == (0, 'rank 0\\n'), a\n"
        "    assert (b.code, b.output) == (0, 'rank 1\\n'), b\n"
        "def test_one_fails(two_ranks):\n"
        "    a, b = two_ranks(SCRIPT, 'fail')\n"
        "    assert a.code == 3 and b.code < 0, (a, b)\n"
    )
    code, output = run(folder)
    assert code == 0, output


def test_the_interpreter_is_asked_for_before_triton_is_imported(folder: Path) -> None:
    (folder / "triton.py").write_text("")
    (folder / "test_triton.py").write_text(
        "import os\n"
        "def test_it(triton_interpreter):\n    assert os.environ['TRITON_INTERPRET'] == '1'\n"
    )
    (folder / "test_late.py").write_text("import triton\ndef test_it(triton_interpreter): ...\n")
    environment = {"PYTHONPATH": str(folder), "TRITON_INTERPRET": ""}
    assert run(folder, "test_triton.py", **environment)[0] == 0
    code, output = run(folder, "test_late.py", **environment)
    assert (code, "set TRITON_INTERPRET=1 first" in output) == (1, True), output


def test_failures_for_want_of_something_outside_are_told_apart(folder: Path) -> None:
    (folder / "test_gated.py").write_text(
        "import pytest\n"
        "class GatedRepoError(Exception): ...\n"
        "def test_call():\n    raise GatedRepoError('403')\n"
        "@pytest.fixture\ndef model():\n    raise GatedRepoError('403')\n"
        "def test_setup(model): ...\n"
        "def test_words():\n    assert not 'GatedRepoError 403'\n"
    )
    code, _ = run(folder)
    assert code == 1
    found = outcomes(folder)
    assert found["test_call"][0] == found["test_setup"][0] == "environment"
    assert found["test_call"][1].startswith("download refused: GatedRepoError")
    assert found["test_words"][0] == "failed"
