"""The study of the compact posterior, end to end at a size that fits a test."""

import functools
import json
from pathlib import Path

import jax
import numpy as np
import pytest
from typer.testing import CliRunner
from zoo import THOROUGH

from onebasin import _demo, cli, store, studies
from onebasin.studies import Figure, Section, Table
from onebasin.studies.compact import CompactConfig, study
from onebasin.studies.compact.study import setting

TINY = {
    "train_size": 200,
    "test_size": 100,
    "hidden": [8],
    "hmc": {"num_chains": 2, "num_samples": 6, "num_warmup": 6, "max_leapfrogs": 10},
    "ensemble": {"num_networks": 3, "epochs": 5},
    "vi": {"epochs": 5},
    "fit": {
        "cost": "weights",
        "num_starts": 1,
        "steps": 20,
        "num_samples": 4,
        "rank": 2,
        "rank_steps": 5,
        "rank_samples": 8,
        "judges": 1,
        "predictive_samples": 10,
    },
    "chains": {"num_samples": 8, "num_warmup": 2, "thin": 2, "epochs": 8},
    "dynamics": {"epochs": 2, "points": 3},
    "swaps": {"values": 2, "runs": 2, "epochs": 2},
    "keep": [1.0, 0.5],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = studies.validated(CompactConfig, TINY, "tiny")
    return study.run(config, tmp_path_factory.mktemp("compact") / "run")


@functools.cache
def found(folder: Path) -> dict[str, Section]:
    return dict(studies.sections(folder))


EXPECTED = {
    "hmc": {"chains", "trace"},
    "fits": {"steps", "starts"},
    "agreement": {"agreement"},
    "left-out": {"left-out", "judges"},
    "picture": {"units"},
    "convergence": {"rhat"},
    "spreads": {"sigma", "pairs", "correlations"},
    "pruning": {"pruning", "kept"},
    "dynamics": {"line", "barriers", "path"},
    "swaps": {"swaps"},
}


def test_every_table_and_figure_is_there(folder: Path) -> None:
    names = {stage: {item.name for item in s.items} for stage, s in found(folder).items()}
    assert {stage: items for stage, items in names.items() if items} == EXPECTED


def test_the_draws_agree_with_themselves(folder: Path) -> None:
    table = found(folder)["agreement"].table("agreement")
    assert table.cell("HMC draws", "agreement").value == 1
    assert table.cell("HMC draws", "tv").value == pytest.approx(0, abs=1e-6)
    for row in table.rows:
        cell = row.cells["tv"]
        assert 0 <= cell.low <= cell.value <= cell.high <= 1


def test_the_judge_is_a_chain_of_its_own(folder: Path) -> None:
    table = found(folder)["left-out"].table("left-out")
    assert table.cell("remaining chains", "ratio").value == pytest.approx(1)
    # Two chains: all that remains is one chain.
    same = table.cell("one chain", "tv").value
    assert table.cell("remaining chains", "tv").value == pytest.approx(same)


def test_a_slider_has_a_frame_for_every_epoch(folder: Path) -> None:
    line = next(i for i in found(folder)["dynamics"].items if i.name == "line")
    assert isinstance(line, Figure)
    assert [frame.label for frame in line.frames] == ["epoch 1", "epoch 2"]


def test_figures_have_as_many_heights_as_places(folder: Path) -> None:
    for section in found(folder).values():
        for item in section.items:
            if isinstance(item, Table):
                continue
            for panel in item.panels:
                for series in panel.series:
                    assert len(series.x) == len(series.y) > 0, (item.name, series.name)


def test_the_command_line_keeps_what_is_done_and_writes_the_page(folder: Path) -> None:
    result = CliRunner().invoke(
        cli.app, ["study", "compact", "--out", str(folder), "--resume", "--json"]
    )
    assert result.exit_code == 0, result.stderr
    content = json.loads(result.stdout)
    assert Path(content["report"]).exists()
    assert len(content["headlines"]) == 4
    assert result.stderr.count("kept") == 12


OWN = """
import jax, jax.numpy as jnp, numpy as np, onebasin as ob

def factory():
    return ob.nets.mlp((4,), 3, "tanh"), jnp.ones((1, 2))

def loader():
    x = np.random.default_rng(0).normal(size=(60, 2)).astype(np.float32)
    y = (x[:, 0] > 0).astype(int) + (x[:, 1] > 0).astype(int)
    return (x[:40], y[:40]), (x[40:], y[40:])

def nothing():
    return None
"""


def test_a_model_and_data_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    own = {**TINY, "model": "own.py:factory", "data": "own.py:loader"}
    (tmp_path / "own.yaml").write_text(json.dumps(own))
    arguments = ["study", "compact", "--config", "own.yaml", "--out", "run", "--json"]
    if THOROUGH:
        result = CliRunner().invoke(cli.app, arguments)
        assert result.exit_code == 0, result.stderr
    else:

        def say(text: str) -> None:
            if "left-out" in text:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            study.run(studies.validated(CompactConfig, own, "own"), tmp_path / "run", say=say)
        table = studies.sections(tmp_path / "run")["agreement"].table("agreement")
        assert table.cell("HMC draws", "agreement").value == 1
    for field in ("model", "data"):
        bad = CliRunner().invoke(cli.app, [*arguments[:-2], "two", f"--{field}", "own.py:nothing"])
        assert bad.exit_code == 2
        assert "expected" in bad.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compat"], "did you mean 'compact'"),
        (["compact", "--preset", "papr"], "did you mean 'paper'"),
        (["compact", "--set", "hidden"], "expected FIELD=VALUE"),
        (["compact", "--set", "hiden=3"], "did you mean 'hidden'"),
        (["compact", "--resume", "--out", "none"], "no run of a study"),
        (["compact", "--resume", "--set", "seed=1"], "leave out --config, --set"),
        (["compact", "--set", "fit.cost=wieghts"], "fit.cost is 'wieghts'"),
        (["compact", "--set", "dynamics.every=99"], "every=99 is more than epochs"),
        (["compact", "--set", "keep=[0]"], "keep.0 is 0"),
        (["compact", "--out", "/proc/none/run"], "o folder can be made"),
    ],
)
def test_bad_input_is_one_sentence(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(cli.app, ["study", *arguments])
    assert result.exit_code == 2
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_spreads_are_those_of_the_aligned_draws(folder: Path) -> None:
    config = studies.validated(CompactConfig, TINY, "tiny")
    like = setting(config).params()
    aligned = store.load(folder / "stages/fits/hmc-aligned.safetensors", like=like)
    sigma = np.concatenate([np.ravel(x) for x in jax.tree.leaves(aligned.std())])
    figure = next(i for i in found(folder)["spreads"].items if i.name == "sigma")
    assert isinstance(figure, Figure)
    shown = next(s for s in figure.panels[1].series if s.name == "HMC")
    share = np.cumsum(shown.y) / np.sum(shown.y)
    median = np.interp(0.5, share, shown.x)
    assert median == pytest.approx(np.log10(np.median(sigma)), abs=0.1)


def test_the_demo_says_what_the_tables_say(folder: Path) -> None:
    agreement = found(folder)["agreement"].table("agreement")
    judged = found(folder)["left-out"].table("left-out")
    text = _demo.sentence(agreement, judged)
    ratio = judged.cell("one Gaussian, distilled", "ratio").value
    assert f"{ratio:.2f} times theirs" in text
    raw = agreement.cell("HMC, one Gaussian, unaligned", "agreement").value
    assert f"{100 * raw:.1f} % of the test inputs" in text
    shown = _demo.rendered(judged)
    assert shown.row_count == len(judged.rows)


def test_layers_of_wide_spread_are_pruned_first(folder: Path) -> None:
    """Where all weights are ranked together, a layer of wide spread loses more than its share."""
    section = found(folder)["pruning"]
    kept, curve = section.table("kept"), section.table("pruning")
    sigmas = {row.label: row.cells["sigma"].value for row in kept.rows}
    widest = max(sigmas, key=sigmas.get)
    shares = [column.key for column in kept.columns[1:]]
    assert kept.cell(widest, shares[0]).value == 100
    narrowest = min(sigmas, key=sigmas.get)
    assert kept.cell(widest, shares[-1]).value < 25 < 50 < kept.cell(narrowest, shares[-1]).value
    label = "HMC by HMC's sigma"
    whole = curve.cell(label, shares[0]).value
    assert curve.cell(f"{label}, layer by layer", shares[0]).value == whole
