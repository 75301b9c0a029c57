"""A study of seconds with something of everything: networks, chains, alignment, distances."""

import hashlib
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import onebasin as ob
from onebasin.evaluate import metrics, predict
from onebasin.studies import Cell, Column, Row, Study, StudyConfig, Table

study = Study("toy", "A toy", "Whether results depend on where they were made.", StudyConfig)

NET = ob.nets.mlp(hidden=(4,), outputs=2)


def problem() -> ob.Problem:
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(40, 3)).astype(np.float32)
    return ob.Problem(NET, (inputs, (inputs[:, 0] > 0).astype(int)))


@study.stage("Networks")
def networks(step) -> None:
    found = ob.infer.ensemble(
        step.key, problem(), num_networks=6, epochs=4, run=step.work / "run", engine=step.engine
    )
    step.save("draws", ob.Draws(found.params, found.mode, found.log_density))


@study.stage("Chains")
def chains(step) -> None:
    found = ob.infer.sghmc(
        step.key,
        problem(),
        num_chains=4,
        num_samples=3,
        num_warmup=2,
        thin=2,
        init="prior",
        run=step.work / "run",
        engine=step.engine,
    )
    step.save("draws", ob.Draws(found.params, found.mode, found.log_density))


@study.stage("Aligned", needs=("networks",))
def aligned(step) -> None:
    like = problem().shapes()
    began = time.perf_counter()
    draws = step.load("networks", "draws", like)
    symmetry = ob.discover(NET.apply, draws[0], jnp.ones((2, 3)))
    found = ob.align_many(symmetry, draws, engine=step.engine)
    step.save("draws", ob.Draws(found.draws.params))
    step.show(table("cost", found.history[-1]))
    step.show_times(table("seconds", time.perf_counter() - began))


def table(name: str, value: float) -> Table:
    rows = [Row(label="all draws", cells={name: Cell(value=value)})]
    return Table(name=name, title=name, columns=[Column(key=name, label=name)], rows=rows)


def blurred(config, network):
    spread = jax.tree.map(lambda leaf: 0.1 + jnp.abs(leaf), network)
    return ob.Gaussian(network, spread), {"seed": config.seed}


@study.stage("Pieces", needs=("networks",))
def pieces(step) -> None:
    draws = step.load("networks", "draws", problem().shapes())
    found = step.each(blurred, [draws[number] for number in range(3)])
    step.save("gaussians", ob.Mixture([each for each, _ in found]))
    step.save_notes("seeds", seeds=[notes["seed"] for _, notes in found])


@study.stage("Distances", needs=("networks", "chains"))
def distances(step) -> None:
    like = problem().shapes()
    x, y = (step.load(name, "draws", like) for name in ("networks", "chains"))
    probs = predict(NET.apply, x, problem().inputs)
    step.save_arrays(
        "found",
        mmd=np.asarray(ob.mmd(x, y, engine=step.engine).values),
        collapse=np.asarray(metrics.functional_collapse(probs, engine=step.engine)),
    )


def checksums(folder: Path) -> dict[str, str]:
    """Every file that a study left, but for what says when and how fast it was made."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for part in ("stages", "tables")
        for path in sorted((folder / part).rglob("*"))
        if path.is_file() and path.name != "stage.json"
    }
