"""Configurations: every field described, read from YAML, and refused with the nearest name."""

from __future__ import annotations

import difflib
import importlib.resources
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from onebasin._core.files import FileError, read_bytes
from onebasin._core.text import described, shortened
from onebasin.studies.errors import StudyError
from onebasin.studies.fields import DEEPEST, LARGEST, FieldsError, parse_yaml

PRESETS = ("demo", "laptop", "paper")


class Part(BaseModel):
    """A part of a configuration: frozen, and without fields that nobody knows."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class StudyConfig(Part):
    """What all studies are told."""

    seed: int = Field(0, ge=-(2**63), lt=2**63, description="Seed of all random numbers.")
    dataset: str = Field("digits", description="Name of a data set, as `onebasin data list` shows.")
    train_size: int | None = Field(
        None, ge=1, description="Training examples used, the first of them; all if left out."
    )
    test_size: int | None = Field(
        None, ge=1, description="Test examples used, the first of them; all if left out."
    )
    model: str | None = Field(
        None, description="A model of your own, as MODULE:FACTORY; it replaces the study's network."
    )
    data: str | None = Field(
        None, description="Data of your own, as MODULE:LOADER; they replace the data set."
    )
    memory: int | None = Field(
        None, ge=1, description="Bytes that training and sampling may take; measured if left out."
    )
    networks_per_task: int | None = Field(
        None,
        ge=1,
        description="Networks, chains or draws of one task; by their size if left out. Results "
        "depend on it in their last digits, and on nothing else about where tasks run.",
    )


Config = TypeVar("Config", bound=StudyConfig)


def load_config(
    kind: type[Config],
    study: str,
    preset: str = "demo",
    file: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Config:
    """A configuration: a preset, changed by a YAML file, changed by single fields.

    Args:
        kind: The study's configuration.
        study: Its name.
        preset: "demo", "laptop", "paper", or another that the study has (see `presets`).
        file: A YAML file with the fields that differ.
        overrides: Fields by dotted name, such as {"hmc.num_samples": 50}.

    Raises:
        StudyError: If a preset, file, field or value is not right, naming the nearest.
    """
    values = read_yaml(preset_file(study, preset))
    if file is not None:
        values = merged(values, read_yaml(Path(file)))
    for name, value in (overrides or {}).items():
        values = merged(values, _nested(name, value))
    return validated(kind, values, str(file) if file is not None else f"{study} {preset}")


def _nested(name: str, value: Any) -> Any:
    """A field by its dotted name, as a part of a configuration."""
    parts = name.split(".")
    if len(parts) > DEEPEST:
        raise StudyError(
            f"got the field {shortened(name)!r} of {len(parts):,} parts, expected at most "
            f"{DEEPEST}, as hmc.num_samples"
        )
    for part in reversed(parts):
        value = {part: value}
    return value


def preset_file(study: str, preset: str) -> Path:
    """Where a preset lies."""
    known = presets(study)
    if preset not in known:
        raise StudyError(f"got the preset {preset!r}, expected {_either(preset, known)}")
    return _folder(study) / f"{preset}.yaml"


def presets(study: str) -> tuple[str, ...]:
    """The presets of a study: those that all have, then its own."""
    own = {file.stem for file in _folder(study).glob("*.yaml")} - set(PRESETS)
    return (*PRESETS, *sorted(own))


def _folder(study: str) -> Path:
    return Path(str(importlib.resources.files("onebasin.studies") / "configs" / study))


def read_yaml(path: Path) -> dict[str, Any]:
    """The fields in a file."""
    try:
        text = read_bytes(path, largest=LARGEST, follow=True).decode("utf-8")
    except (OSError, UnicodeDecodeError, FileError) as error:
        raise StudyError(f"the configuration {path} cannot be read: {error}") from error
    try:
        values = parse_yaml(text)
    except FieldsError as error:
        raise StudyError(f"the configuration {path} is no YAML: {error}") from error
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise StudyError(
            f"the configuration {path} holds a {type(values).__name__}, expected fields with values"
        )
    odd = next((key for key in values if not isinstance(key, str)), None)
    if odd is not None:
        raise StudyError(
            f"the configuration {path} has the field {described(odd)}, expected a name"
        )
    return values


def merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of `new` in place of those of `old`, part by part."""
    out = dict(old)
    for key, value in new.items():
        both = isinstance(value, Mapping) and isinstance(out.get(key), Mapping)
        out[key] = merged(out[key], value) if both else value
    return out


def validated(kind: type[Config], values: Mapping[str, Any], where: str) -> Config:
    """The configuration, or one sentence on the first thing that is wrong with it."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
    names = [str(part) for part in first["loc"]]
    field = shortened(".".join(names))
    if first["type"] == "extra_forbidden":
        known = _either(shortened(names[-1]), _fields(kind, names[:-1]))
        raise StudyError(f"{where} has no field {field!r}, expected {known}")
    if first["type"] == "value_error":
        # Our own sentence, which says what it got.
        begin = f"{where}, {field}" if field else where
        raise StudyError(f"{begin}: {first['ctx']['error']}")
    raise StudyError(
        f"{where}: {field} is {described(first.get('input'))}, but {first['msg'].lower()}"
    )


def _fields(kind: Any, names: Iterable[str]) -> list[str]:
    """The fields of a part of a configuration."""
    for name in names:
        field = getattr(kind, "model_fields", {}).get(name)
        if field is None:
            return []
        kind = field.annotation
    return list(getattr(kind, "model_fields", {}))


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like the one that was typed, if any is like it."""
    close = difflib.get_close_matches(name, list(known), 1)
    return close[0] if close else None


def _either(name: str, known: Iterable[str]) -> str:
    known = list(known)
    guess = nearest(name, known)
    listed = "one of " + ", ".join(known) if known else "none"
    return f"{listed} (did you mean {guess!r}?)" if guess else listed
