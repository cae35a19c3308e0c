"""The From and Date fields of a mail: read leniently but never guessed, written as git writes them.

The date arithmetic is the usual civil-from-days algorithm of the proleptic Gregorian calendar; it
spares the import of :mod:`datetime` and has no upper bound on years.
"""

from __future__ import annotations

from dsv4port.patch.encoded_words import WordPlace, decode_words, encode_words, needs_words

_MONTHS = (
    b"Jan",
    b"Feb",
    b"Mar",
    b"Apr",
    b"May",
    b"Jun",
    b"Jul",
    b"Aug",
    b"Sep",
    b"Oct",
    b"Nov",
    b"Dec",
)
_MONTH_NUMBER = {name.lower(): number for number, name in enumerate(_MONTHS, start=1)}
_WEEKDAYS = (b"Mon", b"Tue", b"Wed", b"Thu", b"Fri", b"Sat", b"Sun")
_ZERO_ZONES = (b"gmt", b"utc", b"ut", b"z")
_DIGITS = b"0123456789"
_SPECIALS = frozenset(b'()<>[]:;@\\,."')
_MAX_SECONDS = 1 << 60


def parse_address(value: bytes) -> tuple[bytes, bytes]:
    """Name and e-mail of a From value: ``Name <mail>``, ``"Na, me" <mail>``, ``mail (Name)``.

    A mail without a name gives its address as the name, as in git.

    Raises:
        ValueError: there is no address in it.
    """
    open_at = value.rfind(b"<")
    if open_at >= 0:
        close_at = value.find(b">", open_at)
        if close_at < 0:
            raise ValueError("address without '>'")
        email = value[open_at + 1 : close_at].strip(b" \t")
        phrase = value[:open_at].strip(b" \t") + b" " + value[close_at + 1 :].strip(b" \t")
    else:
        words = value.split()
        found = [word for word in words if b"@" in word and not word.startswith(b"(")]
        if len(found) != 1:
            raise ValueError("no address")
        email = found[0]
        at = value.find(email)
        phrase = value[:at].strip(b" \t") + b" " + value[at + len(email) :].strip(b" \t")
    name = _phrase_text(phrase.strip(b" "))
    if not email and not name:
        raise ValueError("no address")
    return name or email, email


def _phrase_text(phrase: bytes) -> bytes:
    if phrase.startswith(b"(") and phrase.endswith(b")"):
        phrase = phrase[1:-1].strip(b" \t")
    if b'"' in phrase:
        phrase = _unquoted(phrase)
    # Encoded words may hold blanks on purpose; only what stands outside of them is folded.
    return decode_words(b" ".join(phrase.split()))


def _unquoted(phrase: bytes) -> bytes:
    out = bytearray()
    quoted = False
    at = 0
    while at < len(phrase):
        code = phrase[at : at + 1]
        if code == b'"':
            quoted = not quoted
        elif code == b"\\" and quoted and at + 1 < len(phrase):
            at += 1
            out += phrase[at : at + 1]
        else:
            out += code
        at += 1
    return bytes(out)


def format_address(name: bytes, email: bytes) -> bytes:
    """The From header (without line feed) as ``git format-patch`` writes it."""
    head, longest = b"From: ", 78
    plain = name == b" ".join(name.split()) and name != b""
    if needs_words(name) or (name and not plain):
        head += encode_words(name, len(head), WordPlace.PHRASE)
        longest = 76
    elif any(code in _SPECIALS for code in name):
        head += b'"%s"' % name.replace(b"\\", b"\\\\").replace(b'"', b'\\"')
    else:
        head += name
    width = len(head) - (head.rfind(b"\n") + 1)
    fold = b"\n" if width + len(email) + 3 > longest else b""
    return head + fold + b" <%s>" % email


def _days(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01."""
    year -= month <= 2
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468


def _civil(days: int) -> tuple[int, int, int]:
    days += 719468
    era = days // 146097
    of_era = days - era * 146097
    year = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    shifted = (5 * of_year + 2) // 153
    month = shifted + (3 if shifted < 10 else -9)
    return year + era * 400 + (month <= 2), month, of_year - (153 * shifted + 2) // 5 + 1


def _number(text: bytes, longest: int) -> int:
    if not text or len(text) > longest or text.strip(_DIGITS):
        raise ValueError("malformed date")
    return int(text)


def zone_seconds(zone: bytes) -> int:
    """Seconds east of Greenwich of a zone like ``+0530``.

    Raises:
        ValueError: it is not a sign and four digits.
    """
    if len(zone) != 5 or zone[:1] not in (b"+", b"-"):
        raise ValueError("malformed zone")
    digits = _number(zone[1:], 4)
    seconds = (digits // 100 * 60 + digits % 100) * 60
    return -seconds if zone[:1] == b"-" else seconds


def _zone(text: bytes) -> bytes:
    if text.lower() in _ZERO_ZONES:
        return b"+0000"
    if len(text) == 6 and text[3:4] == b":":
        text = text[:3] + text[4:]
    # "-0000" says that the zone is unknown; git records it as Greenwich.
    return b"+0000" if zone_seconds(text) == 0 else text


def _instant(year: int, month: int, day: int, clock: bytes, zone: bytes) -> tuple[int, bytes]:
    parts = clock.split(b":")
    if len(parts) == 2:
        parts.append(b"00")
    if len(parts) != 3 or not 1 <= month <= 12:
        raise ValueError("malformed date")
    hour, minute, second = (_number(part, 2) for part in parts)
    if hour > 23 or minute > 59 or second > 60:
        raise ValueError("malformed date")
    zone = _zone(zone)
    days = _days(year, month, day)
    if _civil(days) != (year, month, day):
        raise ValueError("no such day")
    seconds = days * 86400 + hour * 3600 + minute * 60 + second
    return seconds - zone_seconds(zone), zone


def parse_date(value: bytes) -> tuple[int, bytes]:
    """Seconds since 1970 and zone of a Date value.

    Read are RFC 2822 (``Tue, 14 Nov 2023 22:13:20 +0000``), ISO 8601 with a zone, and git's own
    ``@1700000000 +0000``.

    Raises:
        ValueError: it is none of them, has no zone, or lies before 1970.
    """
    words = value.partition(b"(")[0].replace(b",", b", ").split()
    if words and (words[0].endswith(b",") or words[0][:3].title() in _WEEKDAYS):
        del words[0]
    if len(words) == 5 and words[1][:3].lower() in _MONTH_NUMBER:
        day, month, year, clock, zone = words
        if len(year) < 4:
            raise ValueError("year of fewer than four digits")
        result = _instant(
            _number(year, 12), _MONTH_NUMBER[month[:3].lower()], _number(day, 2), clock, zone
        )
    elif len(words) == 2 and not words[0].removeprefix(b"@").strip(_DIGITS):
        result = _number(words[0].removeprefix(b"@"), 18), _zone(words[1])
    else:
        result = _parse_iso(words)
    if result[0] < 0:
        raise ValueError("date before 1970")
    return result


def _parse_iso(words: list[bytes]) -> tuple[int, bytes]:
    if len(words) == 1 and words[0][10:11] == b"T":
        words = [words[0][:10], words[0][11:]]
    if len(words) == 2:
        day, rest = words
        for sign in (b"Z", b"+", b"-"):
            clock, found, zone = rest.partition(sign)
            if found:
                words = [day, clock, found + zone if found != b"Z" else b"Z"]
                break
    if len(words) != 3:
        raise ValueError("date is not in the form 'Tue, 14 Nov 2023 22:13:20 +0000'")
    parts = words[0].split(b"-")
    if len(parts) != 3:
        raise ValueError("malformed date")
    year, month, day = parts
    clock = words[1].partition(b".")[0]
    return _instant(_number(year, 12), _number(month, 2), _number(day, 2), clock, words[2])


def format_date(timestamp: int, zone: bytes) -> bytes:
    """An RFC 2822 date in the given zone, as git writes it.

    Raises:
        ValueError: the zone is malformed, or the time is out of any sensible range.
    """
    if not 0 <= timestamp < _MAX_SECONDS:
        raise ValueError("time out of range")
    local = timestamp + zone_seconds(zone)
    days, seconds = divmod(local, 86400)
    year, month, day = _civil(days)
    return b"%s, %d %s %d %02d:%02d:%02d %s" % (
        _WEEKDAYS[(days + 3) % 7],
        day,
        _MONTHS[month - 1],
        year,
        seconds // 3600,
        seconds // 60 % 60,
        seconds % 60,
        zone,
    )
