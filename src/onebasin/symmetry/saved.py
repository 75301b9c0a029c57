"""A group as JSON text: a format, a version, a checksum, and nothing taken on trust.

A group that was changed by one digit is another group, and moves parameters to another function.
So the text carries a checksum, and whether it has one or not, all that it says must fit together:
names are known, axes exist, boxes lie in their parameters side by side, sizes agree.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from onebasin._core.files import parse_json, read_bytes, seal_text, write_text
from onebasin.symmetry.consistency import misfit
from onebasin.symmetry.elements import Block, Weighting
from onebasin.symmetry.errors import SymmetryError
from onebasin.symmetry.factors import KINDS, Factor, Leaf, Site

FORMAT = "onebasin-symmetry"
VERSION = 2
# The first version has no checksum.
UNSEALED = 1
LARGEST_FILE = 2**28
LARGEST_NUMBER = 2**62

Fields = dict[str, Any]
"""What a group is made from, by the names of its arguments."""


class Odd(Exception):
    """What is not as it should be, in a clause."""


def write(group: Mapping[str, Any]) -> str:
    """The text of a group.

    Args:
        group: Its fields, as `dataclasses.asdict` gives them.
    """
    factors = [{**factor, "kinds": sorted(factor["kinds"])} for factor in group["factors"]]
    content = {"format": FORMAT, "version": VERSION, **group, "factors": factors}
    content = json.loads(json.dumps(content))
    return json.dumps({"checksum": seal_text(content), **content}, separators=(",", ":"))


def read(text: str | bytes, name: str = "this", above: int = 2) -> Fields:
    """What a group is made from, by its text.

    Args:
        text: What `write` gave.
        name: What to call the text in messages.
        above: How many calls above this one the user stands, for a warning.

    Raises:
        SymmetryError: If it is something else, or was changed.
    """
    try:
        if not isinstance(text, str | bytes):
            raise Odd(f"got a {type(text).__name__}")
        content = parse_json(text)
        _check_seal(content, name, above + 2)
        fields = _group(content)
        odd = misfit(**fields)
        if odd:
            raise Odd(odd)
        return fields
    except (Odd, ValueError) as error:
        raise SymmetryError(
            f"{name} is not a symmetry written by onebasin ({error}); expected the text of "
            "Symmetry.to_json as it was: write it again from the model, by onebasin.discover"
        ) from error


def save(path: str | os.PathLike[str], text: str) -> None:
    """Writes the text of a group in one step: until it is complete, what was there is kept."""
    write_text(path, text)


def load(path: str | os.PathLike[str]) -> Fields:
    """What a group is made from, by a file."""
    try:
        text = read_bytes(path, largest=LARGEST_FILE, follow=True)
    except ValueError as error:
        raise SymmetryError(f"{error}; expected a file of Symmetry.save") from error
    return read(text, os.fspath(path), above=3)


def _check_seal(content: Any, name: str, level: int) -> None:
    if not isinstance(content, dict):
        raise Odd(f"a JSON {type(content).__name__}")
    if content.get("format") != FORMAT:
        raise Odd(f"format {content.get('format')!r:.40}")
    version = content.get("version")
    if type(version) is not int or version not in (UNSEALED, VERSION):
        raise Odd(f"version {version!r:.40}, while this onebasin reads up to {VERSION}")
    if "checksum" in content:
        sealed = {key: value for key, value in content.items() if key != "checksum"}
        if content["checksum"] != seal_text(sealed):
            raise Odd("its checksum says that it was changed or damaged after it was written")
    elif version > UNSEALED:
        raise Odd("its checksum is missing")
    else:
        warnings.warn(
            f"{name} is a symmetry without a checksum, as older versions of onebasin wrote it: "
            "whether it was changed cannot be told; write it again with Symmetry.to_json or save",
            UserWarning,
            stacklevel=level,
        )


def _group(content: Any) -> Fields:
    kinds = ("factors", "leaves", "sizes", "parents", "dimensions", "unused")
    known = {*kinds, "format", "version", "checksum"}
    data = _record(content, "it", required=kinds, optional=known - set(kinds))
    parents = _mapping(data["parents"], "parents")
    return {
        "factors": tuple(_factor(x) for x in _list(data["factors"], "factors")),
        "leaves": tuple(_leaf(x) for x in _list(data["leaves"], "leaves")),
        "sizes": {k: _count(v, "a size", 0) for k, v in _mapping(data["sizes"], "sizes").items()},
        "parents": {k: _names(v, f"the parents of {k!r}") for k, v in parents.items()},
        "dimensions": _pair(data["dimensions"], "dimensions"),
        "unused": _names(data["unused"], "unused"),
    }


def _factor(data: Any) -> Factor:
    data = _record(data, "a factor", required=_fields(Factor))
    name = _text(data["name"], "the name of a factor")
    kinds = _names(data["kinds"], f"the kinds of factor {name!r}")
    if not kinds or not set(kinds) <= set(KINDS) or len(set(kinds)) < len(kinds):
        raise Odd(f"factor {name!r} has the kinds {list(kinds)}")
    return Factor(
        name=name,
        size=_count(data["size"], f"the size of factor {name!r}", 1),
        copies=_count(data["copies"], f"the copies of factor {name!r}", 0),
        kinds=frozenset(kinds),
        sites=tuple(_site(x) for x in _list(data["sites"], "sites")),
        index=_names(data["index"], f"the index of factor {name!r}"),
        scalings=_count(data["scalings"], f"the scalings of factor {name!r}", 0),
        signs=_count(data["signs"], f"the signs of factor {name!r}", 0),
    )


def _site(data: Any) -> Site:
    data = _record(data, "a site", required=_fields(Site))
    axis = None if data["axis"] is None else _count(data["axis"], "the axis of a site", 0)
    return Site(_text(data["path"], "the path of a site"), axis)


def _leaf(data: Any) -> Leaf:
    data = _record(data, "a leaf", required=_fields(Leaf))
    path = _text(data["path"], "the path of a leaf")
    shape = _counts(data["shape"], f"the shape of {path!r}", 0)
    blocks = _list(data["blocks"], f"the blocks of {path!r}")
    return Leaf(path, shape, tuple(_block(x, path) for x in blocks))


def _block(data: Any, path: str) -> Block:
    what = f"a block of {path!r}"
    data = _record(data, what, required=_fields(Block))
    picks = _list(data["picks"], what)
    return Block(
        tuple(_pair(x, what) for x in _list(data["ranges"], what)),
        tuple(None if pick is None else _counts(pick, what, 0) for pick in picks),
        _names(data["sides"], what),
        _counts(data["shape"], what, 0),
        tuple(_weighting(x) for x in _list(data["scalings"], what)),
        tuple(_weighting(x) for x in _list(data["signs"], what)),
    )


def _weighting(data: Any) -> Weighting:
    data = _record(data, "a weighting", required=_fields(Weighting))
    exponent = data["exponent"]
    if type(exponent) not in (int, float) or not math.isfinite(exponent) or exponent % 1:
        raise Odd(f"an exponent is {exponent!r:.40}, expected a whole number")
    return Weighting(
        _text(data["factor"], "the factor of a weighting"),
        _count(data["generator"], "a generator", 0),
        _counts(data["places"], "the places of a weighting", 0),
        float(exponent),
    )


def _fields(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


def _record(
    data: Any, what: str, *, required: Sequence[str], optional: Any = frozenset()
) -> dict[str, Any]:
    data = _mapping(data, what)
    missing = next((key for key in required if key not in data), None)
    extra = next((key for key in data if key not in required and key not in optional), None)
    if missing is not None:
        raise Odd(f"{what} has no {missing!r}")
    if extra is not None:
        raise Odd(f"{what} has {extra!r:.40}, which means nothing")
    return data


def _mapping(data: Any, what: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise Odd(f"{what} is {data!r:.40}, expected an object")
    return data


def _list(data: Any, what: str) -> list[Any]:
    if not isinstance(data, list):
        raise Odd(f"{what} is {data!r:.40}, expected a list")
    return data


def _text(data: Any, what: str) -> str:
    if not isinstance(data, str):
        raise Odd(f"{what} is {data!r:.40}, expected text")
    return data


def _count(data: Any, what: str, least: int) -> int:
    if type(data) is not int or not least <= data <= LARGEST_NUMBER:
        raise Odd(f"{what} is {data!r:.40}, expected a whole number of at least {least}")
    return data


def _tuple(data: Any, what: str, one: Callable[..., Any], *args: Any) -> tuple[Any, ...]:
    return tuple(one(x, what, *args) for x in _list(data, what))


def _names(data: Any, what: str) -> tuple[str, ...]:
    return _tuple(data, what, _text)


def _counts(data: Any, what: str, least: int) -> tuple[int, ...]:
    return _tuple(data, what, _count, least)


def _pair(data: Any, what: str) -> tuple[int, int]:
    found = _counts(data, what, 0)
    if len(found) != 2:
        raise Odd(f"{what} has {len(found)} numbers where two are expected")
    return found[0], found[1]
