"""Scopes of lines, and when two scopes are proven to be the same."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv4port.apply.languages import LANGUAGES, language_of
from dsv4port.apply.scopes import (
    MAX_MAPPED_BYTES,
    Scope,
    ScopeKind,
    ScopeMap,
    ScopeStep,
    same_scope,
    scope_map,
)

CASES = sorted(path for path in (Path(__file__).parent / "scope_cases").iterdir() if path.is_dir())


def mapped(path: str, content: str | bytes) -> ScopeMap:
    raw = content.encode() if isinstance(content, str) else content
    found = scope_map(path.encode(), raw)
    assert found is not None
    return found


def scope_at(path: str, content: str, line: int) -> Scope:
    scope = mapped(path, content).scope_of_line(line)
    assert scope is not None
    return scope


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_scopes_of_a_file(case: Path) -> None:
    """``scopes.txt`` has one line per range of lines: the range, then the scope."""
    (source,) = case.glob("source.*")
    content = source.read_bytes()
    scopes = mapped(source.name, content)
    ranges: list[tuple[int, int, str]] = []
    for line in range(1, content.count(b"\n") + 1):
        scope = scopes.scope_of_line(line)
        text = "unknown" if scope is None else str(scope)
        if ranges and ranges[-1][2] == text:
            ranges[-1] = (ranges[-1][0], line, text)
        else:
            ranges.append((line, line, text))

    found = [f"{first}-{last} {text}" for first, last, text in ranges]

    assert found == (case / "scopes.txt").read_text().splitlines()


@pytest.mark.parametrize("name", ["w.yaml", "CMakeLists.txt", "x.cmake", "a.md", "run.sh", ".py"])
def test_files_without_a_grammar_have_no_map(name: str) -> None:
    assert scope_map(name.encode(), b"x\n") is None


def test_large_files_have_no_map() -> None:
    assert scope_map(b"a.py", b"#" * (MAX_MAPPED_BYTES + 1)) is None


def test_suffixes_are_read_in_any_case() -> None:
    assert language_of(b"csrc/X.CU") is LANGUAGES[b".cu"]


def test_a_line_beyond_the_file_is_an_error() -> None:
    scopes = mapped("a.py", "x = 1\n")

    for line in (0, -1, 2):
        with pytest.raises(IndexError):
            scopes.scope_of_line(line)


def test_a_last_line_without_line_feed_has_a_scope() -> None:
    assert scope_at("a.py", "def f():\n    return 1", 2).name == "f"


@pytest.mark.parametrize("ends", ["\r\n", "\n"])
def test_line_ends_do_not_matter(ends: str) -> None:
    text = "def f(a,\n      b):\n    return 1\n\n\nx = 1\n".replace("\n", ends)
    scopes = mapped("a.py", text)

    names = [str(scopes.scope_of_line(line)) for line in range(1, 7)]

    assert names == ["f", "f", "f", "module level", "module level", "module level"]


def test_a_byte_order_mark_is_no_error() -> None:
    assert scope_at("a.py", "\ufeffdef f():\n    return 1\n", 1).name == "f"


def test_bytes_that_are_not_utf_8() -> None:
    scopes = mapped("a.py", b"# \xe9\ndef f():\n    return '\xff'\n")

    assert str(scopes.scope_of_line(3)) == "f"


def test_names_cannot_carry_control_characters() -> None:
    scope = scope_at("a.py", 'def f(x="\x1b[31m"): pass\ndef f(x="\u202e"): pass\n', 1)

    assert "\x1b" not in str(scope)
    assert str(scope).isprintable()


class TestSameScope:
    def test_the_name_decides_where_it_is_defined_once(self) -> None:
        old = scope_at("a.py", "def f(x):\n    return 1\n", 2)
        new = scope_at("a.py", "import a\n@deco\ndef f(x, y=2):\n    return 1\n", 4)

        assert same_scope(old, new)

    def test_another_name_or_kind_is_another_scope(self) -> None:
        old = scope_at("a.py", "def f(x):\n    return 1\n", 2)

        assert not same_scope(old, scope_at("a.py", "def g(x):\n    return 1\n", 2))
        assert not same_scope(old, scope_at("a.py", "class f:\n    return_ = 1\n", 2))

    def test_depth_counts(self) -> None:
        inner = scope_at("a.py", "class A:\n    def f(self):\n        pass\n", 3)
        outer = scope_at("a.py", "class A:\n    x = 1\n", 2)

        assert not same_scope(inner, outer)
        assert not same_scope(outer, inner)
        assert same_scope(outer, outer)

    def test_namesakes_need_the_same_signature(self) -> None:
        text = "int f(int x) {\n  return 1;\n}\nint f(char x) {\n  return 1;\n}\n"
        first, second = scope_at("a.cpp", text, 2), scope_at("a.cpp", text, 5)
        swapped = "int f(char x) {\n  return 1;\n}\nint f(int x) {\n  return 1;\n}\n"

        assert not same_scope(first, second)
        assert same_scope(first, scope_at("a.cpp", swapped, 5))
        assert not same_scope(first, scope_at("a.cpp", swapped, 2))

    def test_a_namesake_in_one_version_only_asks_for_the_signature_too(self) -> None:
        alone = scope_at("a.cpp", "int f(long x) {\n  return 1;\n}\n", 2)
        text = "int f(int x) {\n  return 1;\n}\nint f(char x) {\n  return 1;\n}\n"

        assert not same_scope(alone, scope_at("a.cpp", text, 2))
        assert not same_scope(scope_at("a.cpp", text, 2), alone)

    def test_twins_never_compare_equal(self) -> None:
        text = "def f(x):\n    return 1\n\n\ndef f(x):\n    return 1\n"
        first, second = scope_at("a.py", text, 2), scope_at("a.py", text, 6)

        assert first != second
        assert not same_scope(first, second)
        assert same_scope(first, first)

    def test_one_twin_more_is_no_proof(self) -> None:
        one = "def f(x):\n    return 1\n"

        assert not same_scope(scope_at("a.py", one * 2, 2), scope_at("a.py", one * 3, 2))

    def test_the_branch_of_an_if_is_part_of_the_signature(self) -> None:
        text = "if A:\n    def f(x):\n        return 1\nelse:\n    def f(x):\n        return 1\n"
        turned = text.replace("if A", "if not A")

        assert not same_scope(scope_at("a.py", text, 3), scope_at("a.py", text, 6))
        assert not same_scope(scope_at("a.py", text, 3), scope_at("a.py", turned, 3))

    def test_a_namesake_that_does_not_parse_counts(self) -> None:
        good = "def f(x):\n    return 1\n\n\n"
        torn = "def f(y):\n    x = = 1\n    return 1\n"

        assert not same_scope(
            scope_at("a.py", good, 2), scope_at("a.py", torn + "\n\n" + good.replace("x", "z"), 7)
        )

    def test_parents_are_compared_too(self) -> None:
        text = "".join(f"class {name}:\n    def f(self):\n        pass\n" for name in "AB")

        assert not same_scope(scope_at("a.py", text, 3), scope_at("a.py", text, 6))


def test_a_step_checks_its_numbers() -> None:
    with pytest.raises(ValueError, match="no such definition"):
        ScopeStep(ScopeKind.FUNCTION, "f", namesakes=2, twins=1, ordinal=2)


@pytest.mark.parametrize(
    ("path", "text", "line"),
    [
        ("a.py", "def f(:\n    x = 1\n", 2),
        ("a.py", "class A(:\n    def f(self):\n        x = 1\n", 3),
        ("a.py", "class A:\n    x = = 1\n    def f(self):\n        y = 1\n", 4),
        ("a.py", "def f():\n    x = (1,\n    y = 2\n\ndef g():\n    return 1\n", 3),
        ("a.rs", "fn f() {\n  let x = ;\n  g();\n}\n", 3),
        ("a.rs", "mod m {\nfn f() {\n  g();\n}\n", 3),
        ("a.cpp", "void f() {\n  g();\n", 2),
        ("a.cpp", "void f() {\n  g();\n}}\nvoid h() {\n  g();\n}\n", 5),
        ("a.cu", "#if A\nvoid f() {\n#endif\n  g();\n", 4),
        ("a.cu", "enum { A } = {\n  g(),\n} {\n  x\n}\n", 4),
    ],
)
def test_code_that_does_not_parse_is_unknown(path: str, text: str, line: int) -> None:
    assert mapped(path, text).scope_of_line(line) is None


def test_a_header_that_does_not_parse_is_its_own_name() -> None:
    """The grammar may take a word of it for the name; only an equal header is the same then."""
    assert scope_at("a.cu", "SOME THING -> (odd) {\n  g();\n}\n", 2).name == "SOME THING -> (odd)"


_PIECES = st.sampled_from(
    [
        "def f(x):\n", "class A:\n", "    y = 1\n", "        z = 2\n", "\n", "@d\n", "if x:\n",
        "x = [\n", "]\n", '"""', "void f(int x) {\n", "}\n", "{\n", "#if A\n", "#else\n",
        "#endif\n", "namespace n {\n", "struct S {\n", "};\n", 'extern "C" {\n', "/*", "*/", "'",
        '"', "\\\n", "template <typename T>\n", "M(x, y) {\n", "fn f() {\n", "impl A {\n",
        "#[a]\n", 'R"(', ')"',
    ]
)  # fmt: skip


@given(st.lists(_PIECES, max_size=25).map("".join), st.sampled_from(sorted(LANGUAGES)))
def test_any_text_has_a_scope_or_none_on_every_line(text: str, suffix: bytes) -> None:
    content = text.encode()
    scopes = mapped("a" + suffix.decode(), content)

    for line in range(1, content.count(b"\n") + 1):
        scope = scopes.scope_of_line(line)
        assert scope is None or isinstance(scope, Scope)


@given(st.lists(st.sampled_from("fgh"), min_size=1, max_size=8))
def test_definitions_of_one_file_never_prove_each_other(names: list[str]) -> None:
    text = "".join(f"def {name}(x):\n    return x\n" for name in names)
    scopes = mapped("a.py", text)
    found = [scopes.scope_of_line(2 * index + 2) for index in range(len(names))]

    for index, one in enumerate(found):
        for other_index, other in enumerate(found):
            assert one is not None
            assert other is not None
            assert same_scope(one, other) == (index == other_index)


def test_mapping_a_file_of_6000_lines_takes_a_fraction_of_a_second() -> None:
    body = "        x = f(a, b)\n" * 8
    method = "    def m{0}(self, a: int, b=[1, 2]) -> dict[str, int]:\n" + body
    content = ("class A:\n" + "".join(method.format(index) for index in range(700))).encode()
    scope_map(b"warm.py", b"x = 1\n").scope_of_line(1)  # type: ignore[union-attr]

    best = 1.0
    for attempt in range(3):
        started = time.process_time()
        mapped("a.py", content + b"# %d\n" % attempt).scope_of_line(6000)
        best = min(best, time.process_time() - started)

    assert content.count(b"\n") > 6000
    # Some 0.03 s on an idle machine.
    assert best < 0.2
