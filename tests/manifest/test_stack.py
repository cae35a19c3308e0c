"""A stack is resolved as a whole, and preconditions are tried on any tree."""

from __future__ import annotations

import pytest

from dsv4port.errors import BadInputError, ManifestError
from dsv4port.manifest.patchset import load_patchset
from dsv4port.manifest.project import Project
from dsv4port.manifest.stack import load_stack, probe_preconditions, resolve_stack

GOOD_TREE = {b"vllm/car.py": b"import os\n\ndef capture(self):\n    pass\n"}


def edit_patchset(project: Project, name: str, old: str, new: str) -> None:
    file = project.patchset_file(name)
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def edit_stack(project: Project, old: str, new: str) -> None:
    file = project.stack_file("musa")
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def add_patchset(project: Project, name: str, extra: str = "") -> None:
    folder = project.patchset_folder(name) / "v0.26.0"
    folder.mkdir(parents=True)
    (folder / "series").write_text("0001-x.patch\n")
    (folder / "0001-x.patch").touch()
    project.patchset_file(name).write_text(
        f"format: 1\nname: {name}\ntitle: t\nwhy: w\norigin: {{written: here}}\n"
        f"series: {{v0.26.0}}\n{extra}"
    )


def test_patches_come_in_the_order_of_the_stack(project: Project) -> None:
    resolved = resolve_stack(project, "musa")
    assert resolved.pin.name == "v0.26.0"
    assert [patch.key for patch in resolved.patches] == [
        "arena/0001-plan.patch",
        "arena/0002-arena.patch",
        "wiring/0001-wire.patch",
    ]
    assert all(patch.path.is_file() for patch in resolved.patches)


def test_a_missing_companion_is_told_not_refused(project: Project) -> None:
    found = resolve_stack(project, "musa").missing_companions
    assert [(entry.patchset, entry.companion.patchset) for entry in found] == [("arena", "tuning")]
    add_patchset(project, "tuning")
    edit_stack(project, "  - wiring", "  - tuning\n  - wiring")
    assert resolve_stack(project, "musa").missing_companions == ()


def test_what_upstream_already_has_need_not_be_in_the_stack(project: Project) -> None:
    add_patchset(project, "tuning", "upstreamed: [{pin: v0.24.0}]\n")
    assert resolve_stack(project, "musa").missing_companions == ()
    edit_stack(project, "  - arena\n", "")
    with pytest.raises(ManifestError, match="wiring requires arena, which the stack does not have"):
        resolve_stack(project, "musa")
    edit_patchset(
        project, "arena", "upstreamed:\n  - pin: v0.28.0", "upstreamed:\n  - pin: v0.26.0"
    )
    assert len(resolve_stack(project, "musa").members) == 1


@pytest.mark.parametrize("order", ["  - wiring\n  - registered", "  - registered\n  - wiring"])
def test_a_conflict_counts_from_both_sides(order: str, project: Project) -> None:
    add_patchset(project, "registered")
    edit_stack(project, "  - wiring", order)
    line = 8 if order.startswith("  - wiring") else 9
    with pytest.raises(ManifestError) as raised:
        resolve_stack(project, "musa")
    assert str(raised.value) == (
        f"manifests/stacks/musa.yaml:{line}: patchsets[{line - 7}]: wiring conflicts with "
        "registered (both own the buffers; together: double frees)"
    )


def test_a_fault_in_a_patchset_is_reported_where_it_is(project: Project) -> None:
    edit_patchset(project, "arena", "title:", "titel:")
    with pytest.raises(ManifestError, match=r"\Apatchsets/arena/patchset.yaml:3: "):
        resolve_stack(project, "musa")


def test_a_patchset_without_a_series_for_the_pin(project: Project) -> None:
    edit_stack(project, "pin: v0.26.0", "pin: v0.24.0")
    edit_patchset(project, "arena", "refused:\n  v0.24.0: the runner has no phases\n", "")
    with pytest.raises(
        ManifestError, match=r'patchsets\[0\]: patchset arena has no series for "v0'
    ):
        resolve_stack(project, "musa")


def test_an_unknown_stack_names_near_ones(project: Project) -> None:
    with pytest.raises(BadInputError, match='no stack "muse", did you mean `musa`'):
        load_stack(project, "muse")


def test_a_stack_can_be_read_without_its_patchsets(project: Project) -> None:
    edit_stack(project, "  - wiring", "  - nowhere")
    assert load_stack(project, "musa").patchsets == ("arena", "nowhere")


def test_preconditions_that_hold(project: Project) -> None:
    arena = load_patchset(project, "arena")
    assert list(probe_preconditions(arena, "v0.26.0", GOOD_TREE.get)) == []


@pytest.mark.parametrize(
    ("tree", "found"),
    [
        (
            {},
            [
                ("exists", "the path does not exist"),
                ("contains", "the path does not exist"),
                ("lacks", "the path does not exist"),
            ],
        ),
        ({**GOOD_TREE, b"vllm/gone.py": b""}, [("absent", "the path exists")]),
        ({b"vllm/car.py": b"def captured(): pass\n"}, [("contains", "the text is not there")]),
        (
            {b"vllm/car.py": b"def capture(self): pass\n\nclass MyArena:\n"},
            [("lacks", "the text is there, in line 3")],
        ),
    ],
)
def test_preconditions_that_fail(
    tree: dict[bytes, bytes], found: list[tuple[str, str]], project: Project
) -> None:
    arena = load_patchset(project, "arena")
    failures = list(probe_preconditions(arena, "v0.26.0", tree.get))
    assert [(failure.probe.kind.value, failure.found) for failure in failures] == found
    assert {failure.patchset for failure in failures} == {"arena"}


def test_a_probe_for_another_pin_is_not_asked(project: Project) -> None:
    arena = load_patchset(project, "arena")
    tree = {b"vllm/car.py": b""}
    kinds = [
        failure.probe.kind.value for failure in probe_preconditions(arena, "v0.27.0", tree.get)
    ]
    assert kinds == []
