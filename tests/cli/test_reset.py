"""`reset`: back to a bare pin."""

from __future__ import annotations

from support.synthetic import (
    DEMO_FILES,
    NEXT_FILES,
    SyntheticProject,
    git,
    make_repository,
    tree_id,
)


def test_default_is_the_pin_of_the_receipt(applied: SyntheticProject) -> None:
    result = applied.succeed("reset")
    tree = tree_id(DEMO_FILES)
    assert result.out.startswith("vendor/vllm is at v1.0.0 (sdist), commit ")
    assert git(applied.checkout, "rev-parse", "HEAD^{tree}") == tree
    assert git(applied.checkout, "status", "--porcelain") == ""
    answer = applied.run("reset", "--json").json
    assert (answer["changed"], answer["tree"], answer["pin"]) == (False, tree, "v1.0.0")


def test_another_pin_and_a_new_checkout(locked: SyntheticProject) -> None:
    answer = locked.run("reset", "v1.1.0", "--json").json
    assert answer["changed"] is True
    assert answer["checkout"] == str(locked.checkout)
    assert git(locked.checkout, "rev-parse", "HEAD^{tree}") == tree_id(NEXT_FILES)
    assert git(locked.checkout, "rev-parse", "HEAD") == answer["commit"]


def test_without_pin_and_checkout_the_pins_are_listed(locked: SyntheticProject) -> None:
    result = locked.run("reset")
    assert result.code == 2
    assert result.err == (
        "error: no PIN was given, and nothing was published to vendor/vllm yet\n"
        "→ name one of v1.0.0, v1.1.0\n"
    )


def test_unknown_pin(applied: SyntheticProject) -> None:
    assert applied.run("reset", "v9").code == 5


def test_dirty_is_refused_and_force_saves(applied: SyntheticProject) -> None:
    (applied.checkout / "notes.txt").write_text("mine\n")
    refused = applied.run("reset")
    assert refused.code == 4
    assert "\n  notes.txt\n" in refused.err
    answer = applied.run("reset", "--force", "--json").json
    assert not (applied.checkout / "notes.txt").exists()
    assert git(applied.checkout, "show", f"{answer['saved']}:notes.txt") == "mine"
    assert answer["restore"].endswith(f"checkout {answer['saved']} -- .")
    assert answer["notices"]


def test_ignored_build_outputs_stay(applied: SyntheticProject) -> None:
    (applied.checkout / "build").mkdir()
    (applied.checkout / "build" / "output.o").write_text("x")
    applied.succeed("reset")
    assert (applied.checkout / "build" / "output.o").exists()


def test_source_stays_what_the_checkout_stands_on(locked: SyntheticProject) -> None:
    upstream = locked.base / "upstream"
    commit = make_repository(upstream, DEMO_FILES)
    locked.pins["v1.0.0"]["git"] = {"url": upstream.as_uri(), "commit": commit}
    locked.write_pins()
    assert locked.run("reset", "v1.0.0", "--source", "git", "--json").json["commit"] == commit
    assert locked.run("reset", "--json").json["source"] == "git"
    assert locked.run("reset", "--source", "sdist", "--json").json["source"] == "sdist"


def test_other_checkout(locked: SyntheticProject) -> None:
    place = locked.base / "elsewhere" / "vllm"
    locked.succeed("reset", "v1.0.0", "--checkout", str(place))
    assert (place / "vllm" / "worker.py").exists()
    assert not locked.checkout.exists()
