"""The JUnit files of several suites as one."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path

from dsv4port.manifest.files import write_atomically


def write_junit(parts: Sequence[tuple[str, Path]], file: Path) -> None:
    """Write `file` with the suites of all parts, each named by its label. Raises OSError."""
    merged = ElementTree.Element("testsuites")
    for label, part in parts:
        # Written by the pytest that was just run, not by anybody else.
        for suite in ElementTree.parse(part).iter("testsuite"):  # noqa: S314
            suite.set("name", label)
            suite.attrib.pop("hostname", None)
            merged.append(suite)
    file.parent.mkdir(parents=True, exist_ok=True)
    data: bytes = ElementTree.tostring(merged, encoding="utf-8", xml_declaration=True)
    write_atomically(file, data + b"\n")
