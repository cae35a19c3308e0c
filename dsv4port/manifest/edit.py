"""Changes of a ``patchset.yaml`` that leave everything else in it as it stands.

Only what has to be is inserted; comments, order and spelling of the rest stay byte for byte. What
comes out is read again by the caller before it is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dsv4port.errors import ManifestError
from dsv4port.manifest.patchset import Upstreamed
from dsv4port.manifest.scalars import write_text

if TYPE_CHECKING:
    from yaml.nodes import Node as YamlNode


def add_series(text: str, pin: str, folder: str, order: Sequence[str]) -> str:
    """The manifest with a series for a pin.

    Parameters:
        text: the manifest, valid, with a ``series`` mapping.
        folder: the folder of the series; an entry of that pin is given it.
        order: all pins in the order of the releases: where the entry goes.
    """
    node = _value(text, "series")
    assert node is not None
    entries = [(str(key.value), key, value) for key, value in node.value]
    for name, key, value in entries:
        if name == pin:
            if str(value.value or name) == folder:
                return text
            end = max(value.end_mark.index, key.end_mark.index)
            return f"{text[: key.end_mark.index]}: {write_text(folder)}{text[end:]}"
    place = order.index(pin) if pin in order else len(order)
    earlier = [one for one in entries if one[0] in order and order.index(one[0]) < place]
    _, key, value = earlier[-1] if earlier else entries[-1]
    if node.flow_style:
        quote = '"' if text[key.start_mark.index] == '"' else ""
        end = value.end_mark.index
        line = text.rfind("\n", 0, key.start_mark.index) + 1
        margin = text[line : key.start_mark.index]
        joint = f",\n{margin}" if not margin.strip() else ", "
        return f"{text[:end]}{joint}{quote}{pin}{quote}: {quote}{folder}{quote}{text[end:]}"
    margin = " " * key.start_mark.column
    return _insert_line(text, value, f"{margin}{write_text(pin)}: {write_text(folder)}")


def add_upstreamed(text: str, entry: Upstreamed) -> str:
    """The manifest with one more row of ``upstreamed``."""
    node = _value(text, "upstreamed")
    if node is None or not node.value:
        if node is not None:
            raise ManifestError(
                "`upstreamed` is there and empty", fix="remove the key from the patchset.yaml"
            )
        return _append_key(text, entry)
    if node.flow_style:
        end = node.value[-1].end_mark.index
        return f"{text[:end]}, {_flow_row(entry)}{text[end:]}"
    last = node.value[-1]
    margin = " " * node.start_mark.column
    rows = _block_rows(entry, margin)
    return _insert_line(text, last, "\n".join(rows))


def _append_key(text: str, entry: Upstreamed) -> str:
    if text.lstrip().startswith("{"):
        end = text.rstrip().rfind("}")
        head = text[:end].rstrip()
        return f'{head},\n "upstreamed": [{_flow_row(entry)}]\n{text[end:]}'
    if not text.endswith("\n"):
        text += "\n"
    return text + "\n".join(["", "upstreamed:", *_block_rows(entry, "  ")]) + "\n"


def _block_rows(entry: Upstreamed, margin: str) -> list[str]:
    rows = [f"{margin}- pin: {write_text(entry.pin)}"]
    if entry.patches:
        rows.append(f"{margin}  patches: [{', '.join(map(write_text, entry.patches))}]")
    if entry.proof:
        rows.append(f"{margin}  proof:")
        rows += [f"{margin}    - {write_text(text)}" for text in entry.proof]
    return rows


def _flow_row(entry: Upstreamed) -> str:
    def quoted(texts: Sequence[str]) -> str:
        return ", ".join("'" + text.replace("'", "''") + "'" for text in texts)

    cells = [f"pin: {quoted([entry.pin])}"]
    if entry.patches:
        cells.append(f"patches: [{quoted(entry.patches)}]")
    if entry.proof:
        cells.append(f"proof: [{quoted(entry.proof)}]")
    return "{" + ", ".join(cells) + "}"


def _insert_line(text: str, after: YamlNode, line: str) -> str:
    """Insert a line below the last line of a node (and the comment that stands in it)."""
    at = _last_index(text, after)
    end = text.find("\n", at)
    if end < 0:
        return f"{text}\n{line}\n"
    return f"{text[: end + 1]}{line}\n{text[end + 1 :]}"


def _last_index(text: str, node: YamlNode) -> int:
    """Where the last character of a node stands; a block's own end mark lies further down."""
    value = node.value
    if isinstance(value, list) and value and not getattr(node, "flow_style", False):
        last = value[-1]
        return _last_index(text, last[1] if isinstance(last, tuple) else last)
    assert node.end_mark is not None
    end: int = node.end_mark.index
    if getattr(node, "style", None) in ("|", ">"):
        # A block scalar ends where the next thing begins.
        end = len(text[:end].rstrip())
    return max(end - 1, 0)


def _value(text: str, key: str) -> Any:
    import yaml

    # The marks of the pure reader count characters; it is slow, and manifests are small.
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    assert root is not None
    for name, value in root.value:
        if name.value == key:
            return value
    return None
