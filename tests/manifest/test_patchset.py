"""What a patchset manifest says comes out as it was written; values check themselves."""

from __future__ import annotations

import pytest

from dsv4port.errors import BadInputError
from dsv4port.manifest.patchset import (
    Fingerprint,
    Guard,
    Kernel,
    Patchset,
    Probe,
    ProbeKind,
    RegressionTest,
    Upstreamed,
    Written,
    load_patchset,
)
from dsv4port.manifest.project import Project


@pytest.fixture
def arena(project: Project) -> Patchset:
    return load_patchset(project, "arena")


def test_everything_a_manifest_can_say(arena: Patchset) -> None:
    assert (arena.name, arena.title) == ("arena", "Staging arena")
    assert arena.origin.written is Written.HERE
    assert arena.origin.seed == "000"
    assert arena.origin.prs == (46515, "https://example.org/pull/174")
    assert dict(arena.series) == {"v0.26.0": "v0.26.0"}
    assert arena.companions[0].patchset == "tuning"
    assert [probe.kind for probe in arena.preconditions] == list(ProbeKind)
    assert arena.upstreamed == (
        Upstreamed(
            arena.upstreamed[0].pin,
            (51430,),
            Fingerprint("vllm/car.py", "StagingArena"),
            Fingerprint("vllm/runner.py", "capture_phase"),
        ),
    )
    assert arena.hazards[0].condition == "runner=V1"
    assert arena.guard == Guard(
        "contract",
        "vllm/policy.py",
        "fails closed",
        (("hidden_size", "4096"), ("dtype", "bfloat16")),
    )
    assert arena.tests == (
        RegressionTest("tests/check_arena.py", "slot arithmetic", ("torch",), True),
    )
    assert arena.upstream_tests == ("tests/v1/core/test_kv.py",)
    assert arena.kernels == (Kernel(arena.kernels[0].name, ("kernels/copy.cu",), ("90a", "120a")),)
    assert arena.not_run[0].what == "eight devices"
    assert arena.excluded[0].item == "the native part"
    assert dict(arena.refused) == {"v0.24.0": "the runner has no phases"}


def test_what_may_be_left_out(project: Project) -> None:
    wiring = load_patchset(project, "wiring")
    assert dict(wiring.series) == {"v0.26.0": "v0.26.0", "v0.28.0": "v0.26.0"}
    assert wiring.requires[0].breaks == "ImportError at start"
    assert wiring.conflicts[0].patchset == "registered"
    assert (wiring.guard, wiring.tests, wiring.preconditions) == (None, (), ())


def test_a_patchset_cannot_be_changed_through_its_mappings(arena: Patchset) -> None:
    with pytest.raises(TypeError):
        arena.refused["v0.26.0"] = "no"  # type: ignore[index]


def test_an_unknown_patchset_names_near_ones(project: Project) -> None:
    with pytest.raises(BadInputError, match='no patchset "arenas", did you mean `arena`'):
        load_patchset(project, "arenas")


def test_pins_are_only_checked_against_a_list(project: Project) -> None:
    file = project.patchset_file("wiring")
    file.write_text(file.read_text().replace("v0.28.0: v0.26.0", "v9.9: v0.26.0"))
    assert "v9.9" in load_patchset(project, "wiring").series


@pytest.mark.parametrize(
    ("kind", "needle", "regex"),
    [
        (ProbeKind.EXISTS, "x", False),
        (ProbeKind.ABSENT, None, True),
        (ProbeKind.CONTAINS, None, False),
        (ProbeKind.LACKS, "", False),
        (ProbeKind.CONTAINS, "(", True),
    ],
)
def test_probes_that_make_no_sense(kind: ProbeKind, needle: str | None, regex: bool) -> None:
    with pytest.raises(BadInputError):
        Probe("a.py", kind, "because", needle, regex)
