"""Whether a file that a person merged still parses, for the languages that are read here."""

from __future__ import annotations

from dsv4port.apply.grammar import errors, parse
from dsv4port.apply.languages import language_of


def syntax_problem(path: bytes, content: bytes, before: bytes | None) -> str | None:
    """What does not parse, with its line; None where all does, or nobody can tell.

    Parameters:
        before: the file as it was; one that did not parse then proves nothing now.
    """
    if path.endswith(b".py"):
        problem = _python(content)
        return None if problem is None or (before and _python(before)) else problem
    language = language_of(path)
    if language is None:
        return None
    found = errors(language, parse(language, content).root_node)
    if not found:
        return None
    # Macros defeat these grammars: only what was fine before can be held against the change.
    if before is None or errors(language, parse(language, before).root_node):
        return None
    return f"line {found[0].start_point[0] + 1}: {language.name} that does not parse"


def _python(content: bytes) -> str | None:
    import ast

    try:
        ast.parse(content)
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    except ValueError as error:
        return str(error)
    return None
