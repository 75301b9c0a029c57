"""What a run and its stages say of themselves: `run.json` and `stage.json`, as they may look.

Both carry the hash of what they say, which is checked where it is there: kept results may be older.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from onebasin._core.files import is_name, parse_json, read_bytes, seal_text
from onebasin._core.text import shortened
from onebasin.studies.results import Figure, Table

SEAL = "sha256"


def _named(name: str) -> str:
    if not is_name(name) or name.startswith("."):
        raise ValueError(f"got the name {shortened(name)!r}, which is no plain file name")
    return name


Name = Annotated[str, AfterValidator(_named)]


class _Note(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Named(_Note):
    """A stage as its run names it."""

    name: Name
    title: str = ""
    fingerprint: str | None = None


class Doing(_Note):
    """What the process that runs it is doing."""

    stages: list[str] = []
    engine: str | None = None


class RunNote(_Note):
    """What a run says of itself."""

    format: int
    study: str
    title: str = ""
    text: str = ""
    stages: list[Named]
    config: dict[str, Any] = {}
    doing: Doing = Doing()
    versions: dict[str, str] = {}
    machine: dict[str, str] = {}
    started: str = ""
    sha256: str | None = None

    @model_validator(mode="after")
    def _stages_once(self) -> Self:
        names = [stage.name for stage in self.stages]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"got the stage {shortened(twice)!r} twice")
        return self


class StageNote(_Note):
    """What a finished stage says of itself."""

    stage: Name
    fingerprint: str
    read: dict[str, str]
    seconds: float = Field(ge=0, le=1e12, allow_inf_nan=False)
    times: list[Annotated[Table | Figure, Field(discriminator="kind")]] = []
    finished: str = ""
    versions: dict[str, str] = {}
    machine: dict[str, str] = {}
    files: dict[Name, str]
    sha256: str | None = None


Kind = TypeVar("Kind", bound=BaseModel)


def sealed(content: Mapping[str, Any]) -> str:
    """A note as text, with the hash of what it says."""
    return json.dumps({**content, SEAL: seal_text(content)}, indent=1) + "\n"


def read_note(kind: type[Kind], path: Path) -> Kind:
    """What a note says.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it is none, or has changed since it was written; the message is a clause.
    """
    return understood(kind, parse_json(read_bytes(path)))


def understood(kind: type[Kind], content: Any) -> Kind:
    """A note, once its hash and its fields are checked."""
    if isinstance(content, dict) and SEAL in content:
        rest = {name: value for name, value in content.items() if name != SEAL}
        if content[SEAL] != seal_text(rest):
            raise ValueError("its checksum does not fit what it says")
    return checked(kind, content)


def checked(kind: type[Kind], content: Any) -> Kind:
    """A record that JSON holds, or one clause on the first thing that is wrong with it."""
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
    except (RecursionError, OverflowError) as error:
        raise ValueError(f"it holds what no record does ({type(error).__name__})") from error
    where = shortened(".".join(str(part) for part in first["loc"]))
    raise ValueError(f"{where}: {shortened(first['msg'].lower(), 200)}")
