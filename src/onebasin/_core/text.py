"""Text that a stranger may have written, as a person can safely read it."""

from __future__ import annotations

import re
import reprlib
from typing import Any

# What moves a cursor, turns the direction of what follows, or is half of a character.
_UNREADABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
SHOWN = 80


def readable(text: Any) -> str:
    r"""A text with what is not to be read spelt out, such as a name that is not UTF-8.

    Example:
        >>> from onebasin._core.text import readable
        >>> print(readable("caf\udce9 \x1b[2J"))
        caf\xe9 \x1b[2J
    """
    return _UNREADABLE.sub(lambda found: _spelt(found[0]), str(text))


def shortened(text: Any, most: int = SHOWN) -> str:
    """A text of at most so many characters, which says where it was cut."""
    text = readable(text)
    return text if len(text) <= most else text[: most - 3] + "..."


def described(value: Any) -> str:
    """A value for a message, however large it is.

    Example:
        >>> from onebasin._core.text import described
        >>> described([1, "two"]), len(described(list(range(10**6)))) < 80
        ("[1, 'two']", True)
    """
    try:
        return shortened(_short.repr(value))
    except ValueError:
        # Python does not write out integers of thousands of digits.
        return f"a number of {value.bit_length():,} bits" if isinstance(value, int) else "a value"


def _spelt(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        # A byte of a file name that is not UTF-8.
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


_short = reprlib.Repr()
_short.maxstring = _short.maxother = _short.maxlong = SHOWN
