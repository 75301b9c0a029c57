"""The same study here, on one node and on three: the same files."""

from pathlib import Path
from typing import Any

from onebasin.engine import open_engine
from onebasin.studies import StudyConfig

from . import toy

CONFIG = StudyConfig(networks_per_task=2)


def run(folder: Path, **where: Any) -> dict[str, str]:
    said: list[str] = []
    toy.study.run(
        CONFIG,
        folder,
        say=said.append,
        engine=lambda work: open_engine(directory=work, networks_per_task=2, **where),
    )
    assert not any("kept" in line for line in said)
    assert not (folder / "work").exists()
    return toy.checksums(folder)


def test_the_same_study_everywhere(nodes: Any, tmp_path: Path) -> None:
    one = run(tmp_path / "one", name="ray", address=nodes.address)
    while len(nodes.list_all_nodes()) < 3:
        nodes.add_node(num_cpus=1)
    three = run(tmp_path / "three", name="ray", address=nodes.address)
    local = run(tmp_path / "local", name="local")
    assert len(local) == 8
    assert one == local
    assert three == local
