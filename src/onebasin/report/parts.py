"""What stands on the page, put together from the runs: one part per study."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from typing import TypeVar

from onebasin._core.text import readable
from onebasin.report import comparing, figures, palette, tables
from onebasin.report.figures import FigureView
from onebasin.report.numbers import NOTHING, day, seconds
from onebasin.report.reading import Run, flat
from onebasin.report.tables import TableView
from onebasin.studies import Figure, Section, Table

PICTURE = "picture"
Item = TypeVar("Item", Table, Figure)


@dataclasses.dataclass
class Card:
    """A headline, with one value per run that has it."""

    label: str
    values: list[tuple[str, str, str]]


@dataclasses.dataclass
class SectionView:
    """What one stage found, in all runs."""

    id: str
    title: str
    texts: list[tuple[str, str]]
    items: list[TableView | FigureView]
    missing: list[str]
    moved: str = ""


@dataclasses.dataclass
class Sheet:
    """A plain table at the foot: a name, and a value for each run."""

    title: str
    id: str
    head: list[str]
    rows: list[tuple[str, list[str]]]

    def differing(self) -> list[tuple[str, list[str]]]:
        """Rows whose values are not all the same."""
        return [(name, values) for name, values in self.rows if len(set(values)) > 1]


@dataclasses.dataclass
class Part:
    """All that is said of one study."""

    id: str
    title: str
    text: str
    names: list[str]
    facts: Sheet
    missing: list[tuple[str, list[str]]]
    cards: list[Card]
    pictures: list[FigureView]
    sections: list[SectionView]
    config: Sheet
    sheets: list[Sheet]

    @property
    def figures(self) -> list[FigureView]:
        """Every figure, in the order of the page."""
        found = [item for section in self.sections for item in section.items]
        return [*self.pictures, *(item for item in found if isinstance(item, FigureView))]


def part(runs: Sequence[Run], number: int, groups: dict[str, int]) -> Part:
    """The part of one study.

    Args:
        runs: Its runs.
        number: Which part of the page it is.
        groups: Numbers of groups, from `palette.slots`.
    """
    id = f"p{number}"
    names = [run.name for run in runs]
    pictures = _pictures(runs, id, groups)
    config = Sheet(
        "Configuration", f"{id}-config", names, _rows([flat(r.note.config) for r in runs])
    )
    first = runs[0].note
    return Part(
        id=id,
        title=first.title,
        text=first.text,
        names=names,
        facts=Sheet("", "", names, _rows([_facts(run) for run in runs])),
        missing=[
            (run.name, [_title(run, name) for name in run.missing]) for run in runs if run.missing
        ],
        cards=_cards(runs),
        pictures=pictures,
        sections=_sections(runs, id, groups, bool(pictures)),
        config=config,
        sheets=[
            Sheet("Time per stage", f"{id}-time", names, _rows([_times(run) for run in runs])),
            Sheet("Versions", f"{id}-versions", names, _rows([run.note.versions for run in runs])),
        ],
    )


def all_figures(runs: Sequence[Run]) -> list[Figure]:
    """Every figure of the runs."""
    return [
        item
        for run in runs
        for stage in run.stages
        for item in (stage.section.items if stage.section else [])
        if isinstance(item, Figure)
    ]


def _title(run: Run, name: str) -> str:
    stage = run.stage(name)
    return f"{name} ({stage.title})" if stage and stage.title else name


def _facts(run: Run) -> dict[str, str]:
    note = run.note
    config = flat(note.config)
    seeds = {name: value for name, value in config.items() if name.split(".")[-1] == "seed"}
    data = note.config.get("data") or note.config.get("dataset") or NOTHING
    return {
        "Study": note.study,
        "Run": readable(run.folder),
        "Data": str(data),
        **({"Model": str(note.config["model"])} if note.config.get("model") else {}),
        "Started": day(note.started),
        "Took": seconds(run.seconds),
        "Machine": _machines(run) or NOTHING,
        "Seed" if len(seeds) < 2 else "Seeds": ", ".join(
            value if name == "seed" else f"{name} {value}" for name, value in seeds.items()
        )
        or NOTHING,
    }


def _machines(run: Run) -> str:
    """What the stages were done on; with how many of them each, where it was not one."""
    known = [stage.machine or run.note.machine for stage in run.stages if stage.section]
    counts = collections.Counter(_machine(machine) for machine in known or [run.note.machine])
    if len(counts) == 1:
        return next(iter(counts))
    return "; ".join(f"{name} ({number} stages)" for name, number in counts.items())


def _machine(machine: Mapping[str, str]) -> str:
    device = machine.get("device", "")
    if device.lower() == machine.get("platform", ""):
        device = device.upper()
    return ", ".join(text for text in (device, machine.get("system", "")) if text)


def _times(run: Run) -> dict[str, str]:
    times = {stage.name: seconds(stage.seconds) for stage in run.stages}
    return {**times, "all stages": seconds(run.seconds)}


def _rows(columns: Sequence[dict[str, str]]) -> list[tuple[str, list[str]]]:
    names = dict.fromkeys(name for column in columns for name in column)
    return [(name, [column.get(name, NOTHING) for column in columns]) for name in names]


def _cards(runs: Sequence[Run]) -> list[Card]:
    found: dict[str, Card] = {}
    for run in runs:
        for stage in run.stages:
            for line in stage.section.headlines if stage.section else []:
                card = found.setdefault(line.label, Card(line.label, []))
                card.values.append((run.name if len(runs) > 1 else "", line.value, line.text))
    return list(found.values())


def _pictures(runs: Sequence[Run], id: str, groups: dict[str, int]) -> list[FigureView]:
    """The figure that opens the page: the first of the stage named for it, of each run."""
    found = []
    for number, run in enumerate(runs):
        stage = run.stage(PICTURE)
        first = _first(stage.section) if stage and stage.section else None
        if first is not None:
            name = run.name if len(runs) > 1 else ""
            found.append(figures.view(first, f"{id}-opening-{number}", groups, name))
    return found


def _first(section: Section) -> Figure | None:
    return next((item for item in section.items if isinstance(item, Figure)), None)


def _sections(
    runs: Sequence[Run], id: str, groups: dict[str, int], opened: bool
) -> list[SectionView]:
    found = []
    for name in dict.fromkeys(stage.name for run in runs for stage in run.stages):
        stages = [(run.name, run.stage(name)) for run in runs]
        present = [(run, s.section) for run, s in stages if s is not None and s.section is not None]
        if not present:
            continue
        moved = f"{id}-opening-0" if opened and name == PICTURE else ""
        texts = [(run, section.text) for run, section in present if section.text]
        if len(present) == len(runs) and len({text for _, text in texts}) <= 1:
            texts = [("", text) for _, text in texts[:1]]
        view = SectionView(
            id=f"{id}-{name}",
            title=present[0][1].title,
            texts=texts,
            items=_items(present, len(runs) > 1, f"{id}-{name}", groups, bool(moved)),
            missing=[run for run, s in stages if s is None or s.section is None],
            moved=moved,
        )
        # A stage may only prepare what later ones show: its time stands at the foot.
        if view.texts or view.items or view.moved:
            found.append(view)
    return found


def _items(
    present: Sequence[tuple[str, Section]],
    several: bool,
    id: str,
    groups: dict[str, int],
    opened: bool,
) -> list[TableView | FigureView]:
    """Tables side by side, figures one under the other, in the order of the first run."""
    views: list[TableView | FigureView] = []
    keys = dict.fromkeys((item.kind, item.name) for _, section in present for item in section.items)
    for kind, name in keys:
        same = [
            (run, item)
            for run, section in present
            for item in section.items
            if (item.kind, item.name) == (kind, name) and not (opened and item is _first(section))
        ]
        both = [(run, item) for run, item in same if isinstance(item, Table)]
        if len({run for run, _ in both}) > 1:
            views.append(comparing.compared(both, f"{id}-{name}"))
            continue
        for number, (run, item) in enumerate(same):
            # A figure may have the name of a table beside it.
            beside = "-figure" if kind == "figure" and ("table", name) in keys else ""
            place = f"{id}-{name}{beside}" + (f"-{number}" if number else "")
            label = run if several else ""
            if isinstance(item, Table):
                views.append(tables.one(item, place, label))
            else:
                views.append(figures.view(item, place, groups, label))
    return views


def slots(runs: Sequence[Run]) -> dict[str, int]:
    """Numbers of all groups of the runs."""
    return palette.slots(all_figures(runs))
