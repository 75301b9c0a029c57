from pathlib import Path

import numpy as np
import pytest

from onebasin.report import picture
from onebasin.studies import Figure, sections
from report import toy


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Figure]:
    folder = toy.run(tmp_path_factory.mktemp("runs") / "run")
    items = [item for section in sections(folder).values() for item in section.items]
    return {item.name: item for item in items if isinstance(item, Figure)}


@pytest.mark.parametrize("name", ["clouds", "walk", "ways", "landscape", "temperatures"])
def test_every_kind_is_drawn(drawn: dict[str, Figure], name: str, tmp_path: Path) -> None:
    made = picture(drawn[name])
    made.savefig(tmp_path / "picture.png", dpi=50)
    labels = [axes.get_xlabel() for axes in made.axes if axes.get_label() != "<colorbar>"]
    assert labels == [panel.x.label for panel in drawn[name].panels]
    assert made.get_suptitle() == drawn[name].title


def test_lines_differ_without_colour(drawn: dict[str, Figure]) -> None:
    lines = picture(drawn["ways"]).axes[1].get_lines()
    assert len({str(line.get_marker()) for line in lines}) == len(lines) == 3


def test_frames_are_chosen(drawn: dict[str, Figure]) -> None:
    first, last = (picture(drawn["walk"], at).axes[0].get_lines()[0] for at in (0, -1))
    assert not np.array_equal(first.get_xdata(), last.get_xdata())
    with pytest.raises(ValueError, match="frame 9"):
        picture(drawn["walk"], 9)
