"""The header of one mail: its fields, unfolded, and what they say about the body."""

from __future__ import annotations

from binascii import a2b_qp

from dsv4port.patch.encoded_words import decode_base64
from dsv4port.patch.message_form import AUTHOR_FIELD, LINES_FIELD, MESSAGE_FIELD
from dsv4port.patch.source import Source
from dsv4port.quick_dataclass import dataclass

_ONCE = frozenset(
    (
        *(b"from", b"subject", b"date", b"content-type", b"content-transfer-encoding"),
        *(LINES_FIELD.lower(), MESSAGE_FIELD.lower(), AUTHOR_FIELD.lower()),
    )
)
_MAIL_FIELDS = frozenset((b"from", b"subject"))
_BLANKS = b" \t\r\n"
_HEX = b"0123456789abcdefABCDEF"


@dataclass(frozen=True, slots=True)
class Header:
    """The fields of a mail by lower-case name, each with its line index and unfolded value.

    ``mbox`` says whether a ``From `` line stands above them, ``end`` is the first body line.
    """

    fields: dict[bytes, tuple[int, bytes]]
    mbox: bool
    end: int

    def value(self, name: bytes) -> bytes | None:
        """The value of a field, or None."""
        field = self.fields.get(name.lower())
        return field[1] if field is not None else None

    def index(self, name: bytes) -> int:
        """The line of a field that is there."""
        return self.fields[name.lower()][0]


def is_field(line: bytes) -> bool:
    """Whether a line is ``Name: value``."""
    name, colon, _ = line.partition(b":")
    return bool(colon and name) and not any(code <= 0x20 or code >= 0x7F for code in name)


def starts_mail(source: Source, index: int) -> bool:
    """Whether a mailbox's ``From `` line with a mail header below stands at this line."""
    lines = source.lines
    return (
        lines[index].startswith(b"From ") and index + 1 < len(lines) and is_field(lines[index + 1])
    )


def read_header(source: Source) -> Header | None:
    """Read the mail header that the file begins with; None when it begins with other text.

    Raises:
        PatchFormatError: it is malformed, or was converted to CRLF line ends.
    """
    lines = source.lines
    mbox = starts_mail(source, 0)
    if mbox and lines[0].endswith(b"\r\n"):
        raise source.converted(0)
    found: dict[bytes, tuple[int, list[bytes]]] = {}
    name = b""
    at = int(mbox)
    while at < len(lines) and lines[at] not in (b"\n", b"\r\n"):
        line = lines[at]
        if name and line[:1] in (b" ", b"\t"):
            found[name][1].append(line[1:].rstrip(_BLANKS))
        elif is_field(line):
            name, _, value = line.partition(b":")
            name = name.lower()
            if name in _ONCE and name in found:
                raise source.error(
                    at,
                    f"second {name.decode().title()} field in the mail header",
                    fix="remove one of the two",
                )
            found[name] = at, [value.strip(_BLANKS)]
        elif mbox:
            raise source.error(
                at,
                f"malformed line in the mail header: {source.shown(at)}",
                fix="a blank line must separate the mail header from the message",
            )
        else:
            return None
        at += 1
    if not mbox and not _MAIL_FIELDS & found.keys():
        return None
    for index in range(at + 1):
        if index < len(lines) and lines[index].endswith(b"\r\n"):
            raise source.converted(index)
    if at == len(lines):
        raise source.error(at - 1, "mail without a body", fix="get the whole file")
    fields = {name: (index, b" ".join(parts)) for name, (index, parts) in found.items()}
    return Header(fields, mbox, at + 1)


def charset_of(source: Source, header: Header) -> bytes:
    """The charset that the mail declares, or nothing.

    Raises:
        PatchFormatError: the mail has parts, is reflowed text, or is no text.
    """
    content_type = header.value(b"Content-Type")
    if content_type is None:
        return b""
    index = header.index(b"Content-Type")
    kind, *parameters = (part.strip() for part in content_type.split(b";"))
    if not kind.lower().startswith(b"text/"):
        raise source.error(
            index,
            "mail is not plain text",
            fix="save the patch as 'git format-patch' writes it, without --attach",
        )
    charset = b""
    for parameter in parameters:
        key, _, value = parameter.partition(b"=")
        if key.strip().lower() == b"charset":
            charset = value.strip()
        elif key.strip().lower() == b"format" and value.strip(b'" ').lower() == b"flowed":
            raise source.error(
                index,
                "mail is declared as format=flowed, which changes white space",
                fix="get the patch as a file instead of a reflowed mail",
            )
    return charset


def decoded_text(source: Source, header: Header) -> bytes | None:
    """Header and decoded body of a mail with a transfer encoding; None where it has none.

    Raises:
        PatchFormatError: the encoding is unknown or the body malformed.
    """
    value = header.value(b"Content-Transfer-Encoding")
    if value is None or (encoding := value.lower()) in (b"7bit", b"8bit", b"binary"):
        return None
    head = b"".join(source.lines[: header.end])
    body = b"".join(source.lines[header.end :])
    if encoding == b"quoted-printable":
        for piece in body.split(b"=")[1:]:
            if not (
                piece.lstrip(b" \t").startswith((b"\n", b"\r\n")) or piece[:2].strip(_HEX) == b""
            ):
                break
        else:
            return head + a2b_qp(body)
    elif encoding == b"base64":
        try:
            return head + decode_base64(body)
        except ValueError:
            pass
    else:
        raise source.error(
            header.index(b"Content-Transfer-Encoding"),
            "unknown Content-Transfer-Encoding",
            fix="get the patch as 'git format-patch' writes it",
        )
    raise source.error(
        header.end, f"body is not valid {encoding.decode()}", fix="get the whole mail again"
    )
