"""Which tensor of a file is which entry of a module, whatever was wrapped around the module."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from onebasin.torch.errors import ConversionError

# What training scripts wrap around the names.
PREFIXES = ("module.", "model.", "net.", "_orig_mod.")
_CHAIN = re.compile(f"(?:{'|'.join(map(re.escape, PREFIXES))})*")


def matched(where: str, found: Collection[str], wanted: Collection[str]) -> dict[str, str]:
    """The tensor of a file for each entry of a module that has one.

    Names are compared without the prefixes that all of a side begin with, so that no two can become
    one. What is left over is matched where one name is the other with prefixes before it.

    Args:
        where: What has the tensors, for messages.
        found: Their names.
        wanted: The names of the entries.

    Raises:
        ConversionError: If several tensors may be the same entry, or one may be several.
    """
    theirs, ours = _bare(found), _bare(wanted)
    pairs = {ours[bare]: theirs[bare] for bare in ours if bare in theirs}
    taken = set(pairs.values())
    rest = [bare for bare, name in theirs.items() if name not in taken]
    open_ = [bare for bare, name in ours.items() if name not in pairs]
    for bare in open_:
        close = [other for other in rest if _wraps(other, bare) or _wraps(bare, other)]
        if len(close) > 1:
            raise ConversionError(
                f"{where} has the tensors {theirs[close[0]]!r} and {theirs[close[1]]!r}, "
                f"which may both be {ours[bare]!r} of the module: rename them, or leave one out"
            )
        if close:
            pairs[ours[bare]] = theirs[close[0]]
    for name, twin in _twice(pairs):
        raise ConversionError(
            f"{where} has the tensor {pairs[name]!r}, which may be {name!r} or {twin!r} "
            "of the module: rename it as the module does"
        )
    return pairs


def _twice(pairs: dict[str, str]) -> Iterable[tuple[str, str]]:
    """Pairs of entries that were given the same tensor."""
    first: dict[str, str] = {}
    for name, key in pairs.items():
        if key in first:
            yield first[key], name
        first[key] = name


def _bare(names: Collection[str]) -> dict[str, str]:
    """Names by what is left of them without the prefixes that they all begin with."""
    prefix = ""
    while more := [p for p in PREFIXES if names and all(n.startswith(prefix + p) for n in names)]:
        prefix += more[0]
    return {name.removeprefix(prefix): name for name in names}


def _wraps(longer: str, shorter: str) -> bool:
    before = longer.removesuffix(shorter)
    return longer.endswith(shorter) and bool(before) and bool(_CHAIN.fullmatch(before))
