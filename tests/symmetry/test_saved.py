"""A group as text: what was changed is refused, or is the same group still."""

import json
import pathlib
import string
import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import onebasin as ob
from onebasin._core.files import seal_text

from .models import MODELS

GROUPS = {name: ob.discover(*MODELS[name]()) for name in ("heads", "packed", "batch norm")}
EDITS = 400
Edit = Callable[[dict[str, Any]], None]


def unsealed(sym: ob.Symmetry) -> dict[str, Any]:
    """The content as it was before there were checksums."""
    content = json.loads(sym.to_json())
    del content["checksum"]
    return {**content, "version": 1}


def sealed(content: dict[str, Any]) -> str:
    """The text that somebody who knows the checksum would write."""
    content = {key: value for key, value in content.items() if key != "checksum"}
    return json.dumps({"checksum": seal_text(content), **content})


def edited(text: str, rng: np.random.Generator) -> str:
    """One character put in, taken out, replaced or swapped with the next."""
    place = int(rng.integers(len(text)))
    character = string.printable[int(rng.integers(len(string.printable)))]
    return [
        text[:place] + character + text[place + 1 :],
        text[:place] + character + text[place:],
        text[:place] + text[place + 1 :],
        text[:place] + text[place + 1 : place + 2] + text[place] + text[place + 2 :],
        text[:place] + chr(ord(text[place]) ^ (1 << int(rng.integers(7)))) + text[place + 1 :],
    ][int(rng.integers(5))]


def meaning(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


@pytest.mark.parametrize("name", GROUPS)
def test_one_character(name: str) -> None:
    """Space between words and 2 in place of 2.0 change nothing; all else is refused."""
    text = GROUPS[name].to_json()
    rng = np.random.default_rng(sum(map(ord, name)))
    refused = 0
    for _ in range(EDITS):
        other = edited(text, rng)
        if meaning(other) == meaning(text):
            assert ob.Symmetry.from_json(other).to_json() == text
            continue
        with pytest.raises(ob.SymmetryError, match=r"expected the text of Symmetry\.to_json"):
            ob.Symmetry.from_json(other)
        refused += 1
    assert refused > 0.9 * EDITS


@pytest.mark.parametrize("name", GROUPS)
def test_one_digit(name: str) -> None:
    """The digits of exponents, generators and places: those that say which group it is."""
    text = GROUPS[name].to_json()
    start = text.index('"leaves"')
    places = [n for n, character in enumerate(text) if character.isdigit() and n > start]
    rng = np.random.default_rng(3)
    for place in rng.choice(places, min(200, len(places)), replace=False):
        digit = rng.choice([d for d in "0123456789" if d != text[place]])
        other = text[:place] + digit + text[place + 1 :]
        if meaning(other) != meaning(text):
            with pytest.raises(ob.SymmetryError, match="not a symmetry written by onebasin"):
                ob.Symmetry.from_json(other)


def change(path: str, value: Any) -> Edit:
    """Sets what stands at a path; a function of it, or a value."""
    *way, last = [int(key) if key.isdigit() else key for key in path.split("/")]

    def edit(content: Any) -> None:
        for key in way:
            content = content[key]
        content[last] = value(content[last]) if callable(value) else value

    return edit


SAMPLE = "leaves/0/blocks/0"
MISFITS: dict[str, Edit] = {
    "size": change("factors/0/size", 99),
    "copies": change("factors/0/copies", 7),
    "scalings": change("factors/1/scalings", lambda n: n + 1),
    "no signs": change("factors/1/signs", 0),
    "unknown kind": change("factors/0/kinds", ["rotation"]),
    "no kinds": change("factors/0/kinds", []),
    "kind twice": change("factors/1/kinds", ["permutation", "scaling", "sign", "sign"]),
    "a site elsewhere": change("factors/0/sites/0/path", "nowhere"),
    "a site beyond the axes": change("factors/0/sites/0/axis", 9),
    "a site of no axis": change("factors/0/sites/0/axis", None),
    "a name twice": change("factors/1/name", "q[1]"),
    "unknown index": change("factors/0/index", ["nothing"]),
    "index without the parent": change("factors/1/index", ["q[2]"]),
    "size of an index set": change("sizes/q[1]", 5),
    "a size that is true": change("sizes/k", True),
    "unknown parent": change("parents/q[1]", ["nothing"]),
    "its own parent": change("parents/q[1]", ["q[1]"]),
    "parents in a circle": change("parents/q[1]", ["q[2]"]),
    "parents of none": change("parents/other", []),
    "shape": change("leaves/0/shape", [5, 2, 2]),
    "a huge shape": change("leaves/0/shape/0", 10**30),
    "a path twice": change("leaves/1/path", "k"),
    "range": change(f"{SAMPLE}/ranges/0", [0, 99]),
    "a shorter range": change(f"{SAMPLE}/ranges/0", [0, 4]),
    "range of one number": change(f"{SAMPLE}/ranges/0", [0]),
    "a box twice": change("leaves/0/blocks", lambda blocks: [*blocks, *blocks]),
    "pick twice": change(f"{SAMPLE}/picks/0", [0, 0, 1, 2, 3]),
    "a pick outside": change(f"{SAMPLE}/picks/0", [0, 1, 2, 3, 99]),
    "unknown side": change(f"{SAMPLE}/sides/0", "nothing"),
    "the other side": change(f"{SAMPLE}/sides/2", "v"),
    "length of a side": change(f"{SAMPLE}/shape/0", 2),
    "exponent of half": change(f"{SAMPLE}/scalings/0/exponent", 0.5),
    "exponent of nothing": change(f"{SAMPLE}/scalings/0/exponent", 0),
    "exponent without end": change(f"{SAMPLE}/scalings/0/exponent", float("inf")),
    "exponent in words": change(f"{SAMPLE}/scalings/0/exponent", "one"),
    "unknown factor": change(f"{SAMPLE}/scalings/0/factor", "nothing"),
    "another factor": change(f"{SAMPLE}/scalings/0/factor", "v"),
    "unknown generator": change(f"{SAMPLE}/scalings/0/generator", 5),
    "places the wrong way round": change(f"{SAMPLE}/scalings/0/places", [2, 1]),
    "place of no side": change(f"{SAMPLE}/scalings/0/places", [1, 4]),
    "no place": change(f"{SAMPLE}/scalings/0/places", []),
    "dimensions": change("dimensions/0", 10**6),
    "a negative dimension": change("dimensions/0", -1),
    "three dimensions": change("dimensions", [1, 2, 3]),
    "unused and unknown": change("unused", ["nothing"]),
    "something more": change("more", 1),
}


@pytest.mark.parametrize("name", MISFITS)
def test_what_does_not_fit(name: str) -> None:
    """A group that does not make sense is refused, whatever its checksum says."""
    content = json.loads(GROUPS["heads"].to_json())
    MISFITS[name](content)
    with pytest.raises(ob.SymmetryError, match="not a symmetry written by onebasin"):
        ob.Symmetry.from_json(sealed(content))
    content = unsealed(GROUPS["heads"])
    MISFITS[name](content)
    with (
        pytest.warns(UserWarning, match="without a checksum"),
        pytest.raises(ob.SymmetryError, match="not a symmetry written by onebasin"),
    ):
        ob.Symmetry.from_json(json.dumps(content))


@pytest.mark.parametrize("name", GROUPS)
def test_before_there_were_checksums(name: str) -> None:
    with pytest.warns(UserWarning, match="write it again") as caught:
        again = ob.Symmetry.from_json(json.dumps(unsealed(GROUPS[name])))
    assert caught[0].filename == __file__
    assert again.to_json() == GROUPS[name].to_json()


def test_an_old_version_does_not_do_away_with_the_checksum() -> None:
    text = GROUPS["heads"].to_json().replace('"version":2', '"version":1')
    with pytest.raises(ob.SymmetryError, match="changed or damaged"):
        ob.Symmetry.from_json(text)
    text = GROUPS["heads"].to_json().replace('"checksum":', '"other":')
    with pytest.raises(ob.SymmetryError, match="checksum is missing"):
        ob.Symmetry.from_json(text)


@pytest.mark.parametrize("depth", [200, 100_000])
def test_deep_nesting(depth: int) -> None:
    for text in ("[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth):
        with pytest.raises(ob.SymmetryError, match="nested more than"):
            ob.Symmetry.from_json(text)


def test_files_name_their_path(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "group.json"
    GROUPS["heads"].save(path)
    assert [each.name for each in tmp_path.iterdir()] == ["group.json"]
    path.write_text(path.read_text().replace('"exponent":-1.0', '"exponent":1.0', 1))
    with pytest.raises(ob.SymmetryError, match=r"group\.json is not a symmetry"):
        ob.Symmetry.load(path)
    with pytest.raises(ob.SymmetryError, match="not a regular file"):
        ob.Symmetry.load(tmp_path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ob.SymmetryError, match="not a symmetry"):
        ob.Symmetry.load(path)


@pytest.mark.skipif(sys.platform == "win32", reason="limits of files are those of Unix")
def test_a_full_disk_leaves_the_file_that_was_there(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "group.json"
    GROUPS["heads"].save(path)
    code = f"""
        import resource, signal
        import onebasin as ob
        symmetry = ob.Symmetry.load({str(path)!r})
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        try:
            symmetry.save({str(path)!r})
        except OSError as error:
            print("no room")
    """
    run = [sys.executable, "-c", textwrap.dedent(code)]
    assert "no room" in subprocess.run(run, capture_output=True, text=True, check=True).stdout
    assert ob.Symmetry.load(path).to_json() == GROUPS["heads"].to_json()
    assert [each.name for each in tmp_path.iterdir()] == ["group.json"]
