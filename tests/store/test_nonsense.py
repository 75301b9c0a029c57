"""Files with a checksum that fits and nonsense inside, as somebody makes who knows how."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import onebasin as ob
from onebasin._core.files import seal_text
from onebasin.store import Run, StoreError, load, load_params, open_torch, save
from onebasin.store.posteriors import parts_of
from onebasin.store.tensors import write_sealed, write_tensors

ODD: list[Any] = [None, -1, 1.5, True, "x", [], {}, [1], {"a": 1}, 2**70, "../x", float("nan")]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    with Run.create(folder, {"a": 1}) as run:
        for step in range(2):
            with run.transaction() as t:
                t.append("draws", {"params": {"w": np.full((2, 3), step, np.float32)}})
                t.put("state", {"key": jax.random.key(step)})
    return folder


def places(content: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where all parts of something from JSON stand."""
    parts = content.items() if isinstance(content, dict) else enumerate(content)
    found = []
    for key, value in parts:
        found.append((*path, key))
        if isinstance(value, dict | list):
            found += places(value, (*path, key))
    return found


FREE = ("config", "seeds", "notes")


def test_any_part_of_a_manifest_that_is_not_what_it_should_be(whole: Path) -> None:
    path = whole / "manifest.json"
    good = path.read_text()
    content = json.loads(good)
    del content["sha256"]
    count = 0
    try:
        for place in places(content):
            for odd in [*ODD, "missing"]:
                changed = json.loads(json.dumps(content))
                holder = changed
                for key in place[:-1]:
                    holder = holder[key]
                before = holder[place[-1]]
                if odd == "missing":
                    del holder[place[-1]]
                else:
                    holder[place[-1]] = odd
                path.write_text(json.dumps({"sha256": seal_text(changed), **changed}))
                alike = json.dumps(before) == json.dumps(odd)
                text = isinstance(before, str) and isinstance(odd, str) and odd != "missing"
                if alike or place[0] in FREE or "notes" in place or (text and place[0] != "run"):
                    _open_or_refuse(whole)
                else:
                    count += _open_or_refuse(whole)
        assert count > 400
    finally:
        path.write_text(good)


def _open_or_refuse(folder: Path) -> bool:
    """Whether it was refused as it should be; other errors are raised."""
    try:
        run = Run.open(folder)
        run.check()
        run.draws()
        run.get("state")
    except StoreError:
        return True
    return False


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda m: m["states"]["state"].update(file="../x"), r"names '\.\./x', expected 'states/"),
        (lambda m: m["streams"]["draws"]["shards"][0].update(draws=-2), "no counts"),
        (lambda m: m["streams"]["draws"]["shards"].reverse(), "not in order"),
        (lambda m: m["streams"]["draws"]["leaves"].update({"params/w": ["F32", [-1]]}), "shape"),
        (lambda m: m["before"]["shards"].update(draws=9), "'draws' had 9 shards before"),
        (lambda m: m.pop("states"), "other parts than a manifest"),
        (lambda m: m.update(extra=1), "other parts than a manifest"),
        (lambda m: m.update(version=True), "version True of its format"),
    ],
)
def test_what_is_wrong_with_a_sealed_manifest_is_said(
    whole: Path, change: Callable[[dict[str, Any]], None], said: str
) -> None:
    path = whole / "manifest.json"
    good = path.read_text()
    content = json.loads(good)
    del content["sha256"]
    change(content)
    try:
        path.write_text(json.dumps({"sha256": seal_text(content), **content}))
        with pytest.raises(StoreError, match=said):
            Run.open(whole)
    finally:
        path.write_text(good)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 5000, "[]", "null", "3", '"x"', "\xff"])
def test_json_that_is_no_manifest(whole: Path, text: str) -> None:
    path = whole / "manifest.json"
    good = path.read_bytes()
    try:
        path.write_bytes(text.encode("latin-1"))
        with pytest.raises(StoreError, match="is not the manifest of a run"):
            Run.open(whole)
    finally:
        path.write_bytes(good)


def test_what_cannot_be_read_again_is_not_written(tmp_path: Path) -> None:
    deep: list[Any] = []
    for _ in range(2000):
        deep = [deep]
    with pytest.raises(StoreError, match="is nested more than"):
        Run.create(tmp_path / "run", {"x": deep})
    with pytest.raises(StoreError, match="two keys of config are written alike"):
        Run.create(tmp_path / "run", {1: "a", "1": "b"})
    edge: list[Any] = []
    for _ in range(85):
        edge = [edge]
    run = Run.create(tmp_path / "run", edge)
    with run.transaction() as t:
        t.note(x=edge)
    with run.transaction() as t:
        t.note(y=1)
    assert Run.open(tmp_path / "run").notes["x"] == edge


def header(text: str, body: bytes = b"") -> bytes:
    return len(text).to_bytes(8, "little") + text.encode() + body


TENSOR = '{"w":{"dtype":"F32","shape":SHAPE,"data_offsets":PLACE}}'
HEADERS = {
    "deep": header("[" * 100_000),
    "deep metadata": header('{"__metadata__":' + "[" * 5000 + "]" * 5000 + "}"),
    "half a character": header(
        '{"\\ud800":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}', bytes(8)
    ),
    "half a character of metadata": header('{"__metadata__":{"a":"\\ud800"}}'),
    "list": header("[]"),
    "metadata": header('{"__metadata__":{"a":1}}'),
    "text for tensor": header('{"w":"x"}'),
    "longer than the file": (2**40).to_bytes(8, "little") + b"{}",
    "not text": (4).to_bytes(8, "little") + b"\xff\xfe{}",
    "utf-16": (4).to_bytes(8, "little") + "{}".encode("utf-16-le"),
    **{
        f"{shape} at {place}": header(
            TENSOR.replace("SHAPE", shape).replace("PLACE", place), bytes(8)
        )
        for shape, place in [
            ("[2]", "[0,4]"),
            ("[-2]", "[0,8]"),
            ("[2]", "[4,12]"),
            ("[2]", "[8,0]"),
            ("[2]", "[0]"),
            ("[2]", "[0,8,8]"),
            ("2", "[0,8]"),
            ('"2"', "[0,8]"),
            ("[2.0]", "[0,8]"),
            ("[true,2]", "[0,8]"),
            ("[" + "1," * 70 + "2]", "[0,8]"),
            ("[0,4611686018427387000]", "[0,0]"),
            ("[2]", "null"),
            ("[[2]]", "[0,8]"),
        ]
    },
}


@pytest.mark.parametrize("case", HEADERS)
def test_headers_that_lie(tmp_path: Path, case: str) -> None:
    path = tmp_path / "file.safetensors"
    path.write_bytes(HEADERS[case])
    like = {"w": np.ones(2, np.float32)}
    for read in (
        lambda: load(path),
        lambda: load_params(path, like),
        lambda: open_torch(path, {"w": "w"}, like),
    ):
        with pytest.raises(StoreError, match="is not a safetensors file") as caught:
            read()
        assert "\n" not in str(caught.value)


ONE = np.ones((3, 2), np.float32)
KEYS = json.dumps({"params/w": "threefry2x32"})
POSTERIORS: dict[str, tuple[dict[str, np.ndarray], dict[str, str]]] = {
    "no leaves": ({}, {}),
    "no params": ({"mode": ONE}, {}),
    "draws of different lengths": ({"params/a": ONE, "params/b": ONE[:2]}, {}),
    "scalar": ({"params/w": np.float32(1.0)}, {}),
    "modes that are no integers": ({"params/w": ONE, "mode": ONE[:, 0]}, {}),
    "several modes": ({"params/w": ONE, "mode/a": ONE, "mode/b": ONE}, {}),
    "part and leaf": ({"params/w": ONE, "params/w/x": ONE}, {}),
    "leaf and part": ({"params/w/x": ONE, "params/w": ONE}, {}),
    "keys that are none": ({"params/w": ONE}, {"keys": KEYS}),
    "keys of nothing": ({"params/w": ONE}, {"keys": '{"x": "threefry2x32"}'}),
    "keys that are no object": ({"params/w": ONE}, {"keys": "[1]"}),
    "keys of no kind": ({"params/w": ONE}, {"keys": '{"params/w": 3}'}),
    "deep keys": ({"params/w": ONE}, {"keys": "[" * 100_000}),
    "deep info": ({"params/w": ONE}, {"info": "[" * 100_000}),
    "info that is none": ({"params/w": ONE}, {"info": "{"}),
    "no form": ({"params/w": ONE}, {"form": "x"}),
    "another version": ({"params/w": ONE}, {"version": "9"}),
    "mean and std differ": ({"mean/w": ONE, "std/w": ONE[0]}, {"form": "Gaussian"}),
    "no std": ({"mean/w": ONE}, {"form": "Gaussian"}),
    "no mean": ({"std/w": ONE}, {"form": "Gaussian"}),
    "integers": ({"mean/w": np.ones(2, int), "std/w": np.ones(2, int)}, {"form": "Gaussian"}),
    "negative std": ({"mean/w": ONE, "std/w": -ONE}, {"form": "Gaussian"}),
    "factor": ({"mean/w": ONE, "std/w": ONE, "factor/w": ONE}, {"form": "Gaussian"}),
    "keys as mean": (
        {"mean/w": np.ones((3, 2), np.uint32), "std/w": ONE},
        {"form": "Gaussian", "keys": '{"mean/w": "threefry2x32"}'},
    ),
    "no weights": ({"components/0/mean/w": ONE}, {"form": "Mixture"}),
    "components without a number": (
        {"components/x/mean/w": ONE, "weights": ONE[0]},
        {"form": "Mixture"},
    ),
    "components alone": ({"components": ONE, "weights": ONE[0]}, {"form": "Mixture"}),
    "no components": ({"weights": ONE[0]}, {"form": "Mixture"}),
    "weights": (
        {"components/0/mean/w": ONE, "components/0/std/w": ONE, "weights": 3 * ONE},
        {"form": "Mixture"},
    ),
}


@pytest.mark.parametrize("case", POSTERIORS)
def test_posteriors_that_are_none(tmp_path: Path, case: str) -> None:
    arrays, said = POSTERIORS[case]
    path = tmp_path / "posterior.safetensors"
    metadata = {"format": "onebasin-posterior", "version": "2", "form": "Draws", **said}
    with path.open("wb") as file:
        write_sealed(file, arrays, metadata)
    for like in (None, {"w": np.ones(2, np.float32)}):
        with pytest.raises(StoreError, match=r"posterior\.safetensors") as no:
            load(path, like)
        assert "\n" not in str(no.value)


def test_files_without_a_checksum_are_refused_as_well(tmp_path: Path) -> None:
    path = tmp_path / "posterior.safetensors"
    save(path, ob.Gaussian({"w": ONE}, 1.0))
    arrays, metadata = parts_of(ob.Gaussian({"w": ONE}, 1.0), "the file")
    arrays["std/w"] = -arrays["std/w"]
    with path.open("wb") as file:
        write_tensors(file, arrays, {**metadata, "version": "1"})
    with pytest.raises(StoreError, match="does not hold a Gaussian"):
        load(path)
