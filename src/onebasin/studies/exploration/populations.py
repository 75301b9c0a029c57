"""The toy, the target and the methods: where all networks come from."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin import infer, nets
from onebasin.align import canonicalize
from onebasin.evaluate import predict
from onebasin.infer import Normal, Problem
from onebasin.posterior import Draws, Mixture
from onebasin.studies.exploration.base import (
    ENSEMBLE,
    HMC_TARGET,
    METHODS,
    exact,
    several,
    study,
    world,
)
from onebasin.studies.results import (
    Axis,
    Cell,
    Column,
    Figure,
    Panel,
    Row,
    Series,
    Table,
    interval,
)
from onebasin.studies.step import Step
from onebasin.symmetry import discover

TRAINED = ("laplace", "sghmc", "hmc", "target by hmc")
"""What starts at trained networks: each at networks of its own, all trained as one population."""

EXACT = ("laplace", "sghmc", "hmc", "target by hmc")
"""What samples or needs curvature, and so single precision whatever networks are trained in."""

CHAINS = ("sghmc", "hmc")
"""Methods whose draws cost work one by one: a chain is no longer than what is read of it."""


def bernoulli(outputs: jax.Array, targets: jax.Array) -> jax.Array:
    """Log likelihood of labels 0 and 1 by logits (example, 1)."""
    return jax.nn.log_sigmoid((2 * targets - 1) * outputs[:, 0])


@study.stage("The toy: many tiny networks, raw, scaled, scaled and sorted", reads=("toy",))
def toy(step: Step) -> None:
    """Trains MLPs 2-2-1 and looks at the two weights of their last layer."""
    config = step.config.toy
    rng = np.random.default_rng(step.config.seed)
    side = np.repeat([0, 1], config.points)
    centres = np.array([[-1.0, -0.5], [1.0, 0.5]])
    inputs = centres[side] + rng.normal(size=(2 * config.points, 2)) * 0.7
    net = nets.mlp(hidden=(2,), outputs=1)
    data = (jnp.asarray(inputs, jnp.float32), jnp.asarray(side, jnp.float32))
    problem = Problem(net, data, Normal(1.0), likelihood=bernoulli)
    draws = infer.ensemble(
        step.key,
        problem,
        num_networks=config.num_networks,
        epochs=config.epochs,
        batch_size=min(100, 2 * config.points),
        learning_rate=config.learning_rate,
        memory=step.config.memory,
        progress=step.progress,
        # What large networks are a task of is no measure for a thousand of nine weights.
        engine=None if step.config.networks_per_task else step.engine,
        run=step.work / "networks",
    )
    symmetry = discover(net.apply, draws[0], data[0][:2])
    forms = {
        "raw": draws.params,
        "scaled": canonicalize(symmetry, draws.params, "min-mass", None),
        "scaled and sorted": canonicalize(symmetry, draws.params, "min-mass", "max"),
    }
    logits = exact(net.apply, draws, data[0], "identity")
    panels, rows = [], []
    for name, params in forms.items():
        weights = np.asarray(params["Dense_1"]["kernel"])[..., 0]
        step.save_arrays(name.replace(" ", "-"), weights=weights)
        after = exact(net.apply, Draws(params), data[0], "identity")
        covariance = np.cov(weights.T)
        rows.append(
            Row(
                label=name,
                cells={
                    "change": Cell(value=np.abs(after - logits).max()),
                    "above": Cell(value=float(np.mean(weights[:, 0] > weights[:, 1]))),
                    "spread": Cell(value=float(np.sqrt(np.trace(covariance)))),
                    "area": Cell(value=float(np.sqrt(max(np.linalg.det(covariance), 0)))),
                },
            )
        )
        shown = weights[: config.shown]
        panels.append(
            Panel(
                title=name,
                x=Axis(label="last-layer weight of unit 1"),
                y=Axis(label="last-layer weight of unit 2"),
                series=[Series(name="networks", x=shown[:, 0], y=shown[:, 1], style="points")],
            )
        )
    step.say(
        "An MLP 2-2-1 has 2 permutations and 2 scalings. Every point is one trained network: the "
        "raw cloud is the same on both sides of the diagonal, scaling draws it onto curves, "
        "sorting folds it onto one side."
    )
    step.show(
        Figure(
            name="toy",
            title="The last-layer weights of tiny networks: raw, scaled, scaled and sorted",
            text=f"{config.num_networks:,} networks trained on 2 x {config.points} points; "
            f"{min(config.shown, config.num_networks):,} are drawn.",
            panels=panels,
        ),
        Table(
            name="toy",
            title="Removal leaves every function alone and gathers the weights",
            text=f"{config.num_networks:,} networks.",
            columns=[
                Column(key="change", label="largest change of a logit", digits=6, better="lower"),
                Column(key="above", label="share with weight 1 above weight 2"),
                Column(key="spread", label="root of the total variance"),
                Column(key="area", label="root of the generalised variance"),
            ],
            rows=rows,
        ),
    )


def _train(config: Any, part: Any) -> dict[str, Any]:
    return {
        "epochs": part.epochs,
        "batch_size": min(part.batch_size, len(world(config).setting.train[1])),
        "learning_rate": part.learning_rate,
        "memory": config.memory,
    }


@study.stage(
    "The target: a population of independently trained networks",
    reads=("net", "prior_variance", "train", "train_in", "num_samples", "num_target", "repeats"),
    tasks=True,
)
def target(step: Step) -> None:
    """Trains the target, and as many networks for the deep ensembles that are compared with it."""
    config = step.config
    here = world(config)
    count = config.target_size
    compared = config.num_samples * config.repeats
    found = infer.ensemble(
        step.key,
        here.training,
        num_networks=count + compared,
        progress=step.progress,
        engine=step.engine,
        run=step.work / "networks",
        **_train(config, config.train),
    )
    step.end_tasks()
    step.save("sgd", found[:count])
    step.save("ensemble", found[count:])
    inputs, labels = here.setting.test
    probs = np.asarray(predict(here.setting.net.apply, found[:count], inputs))
    right = (probs.argmax(axis=-1) == np.asarray(labels)).mean(axis=1)
    step.show(
        Table(
            name="target",
            title="The networks of the target",
            text=f"{here.label}: independently trained networks, {count:,} as the target and "
            f"{compared:,} as the deep ensembles.",
            columns=[
                Column(key="networks", label="networks", digits=0),
                Column(key="weights", label="weights", digits=0),
                Column(key="copies", label="log10 of copies by permutation", digits=1),
                Column(key="accuracy", label="accuracy of one network", better="higher"),
            ],
            rows=[
                Row(
                    label=here.label,
                    cells={
                        "networks": Cell(value=count),
                        "weights": Cell(value=sum(x.size for x in jax.tree.leaves(found[0]))),
                        "copies": Cell(value=here.symmetry.log_copies() / np.log(10)),
                        "accuracy": interval(right),
                    },
                )
            ],
        )
    )


@study.stage(
    "The methods, each with one mode and with several",
    reads=(
        "net",
        "prior_variance",
        "train",
        "train_in",
        "variational",
        "chains",
        "methods",
        "num_samples",
        "modes",
        "repeats",
        "dropout_rate",
        "swag_snapshots",
        "laplace_probes",
    ),
    version=3,
    tasks=True,
)
def methods(step: Step) -> None:
    """Runs every method from repeats x modes independent starts, and HMC once more as a target."""
    config = step.config
    starts = config.repeats * config.modes
    rows, times = {}, {}
    for name in step.in_turn(_names(config)):
        draws, seconds = run_method(step, name)
        if name == "target by hmc":
            chosen = [several(config, draws, repeat) for repeat in range(config.repeats)]
            draws = draws[np.concatenate(chosen)]
            step.save(HMC_TARGET, draws)
        else:
            step.save(name, draws)
        cells = {
            "networks": Cell(value=len(draws)),
            "starts": Cell(value=starts),
        }
        label = METHODS.get(name, "HMC, as a target")
        rows[name] = Row(label=label, cells=cells)
        times[name] = Row(label=label, cells={"seconds": Cell(value=seconds)})
    step.show(
        Table(
            name="methods",
            title="What was run",
            text=f"Every method from {starts} independent starts: {config.repeats} repeats of "
            f"{config.modes} modes. A sample of one mode has {config.num_samples} networks of "
            f"one start, one of several modes as many from {config.modes} starts, so that all "
            f"chains but the first of a repeat are short; {ENSEMBLE}s have {config.num_samples} "
            "networks trained apart.",
            columns=[
                Column(key="networks", label="networks drawn", digits=0),
                Column(key="starts", label="independent starts", digits=0),
            ],
            rows=[rows[name] for name in _names(config)],
        )
    )
    step.show_times(
        Table(
            name="methods-seconds",
            title="How long it took",
            text="Seconds of the run itself: what helpers had done before took none.",
            columns=[Column(key="seconds", label="seconds", digits=1)],
            rows=[times[name] for name in _names(config)],
        )
    )


def _names(config: Any) -> list[str]:
    """The methods that are run; HMC twice, the second time as a target."""
    return [*config.methods, *(["target by hmc"] if "hmc" in config.methods else [])]


def run_method(step: Step, name: str) -> tuple[Draws, float]:
    """The draws of one method from all of its starts, and the seconds that they took.

    What a method finds does not depend on which others were run before it.
    """
    config = step.config
    here = world(config)
    train = _train(config, config.train)
    each = {"num_samples": config.num_samples}
    warm = {"num_warmup": config.chains.num_warmup, "memory": config.memory}
    by_hmc = {**warm, "max_leapfrogs": config.chains.max_leapfrogs}
    arguments: dict[str, dict[str, Any]] = {
        "dropout": {**train, **each, "rate": config.dropout_rate},
        "mean_field": _train(config, config.variational),
        "swag": {**train, "num_samples": config.swag_snapshots},
        "laplace": {
            **each,
            "epochs": 0,
            "probes": config.laplace_probes,
            "memory": config.memory,
        },
        "sghmc": {**warm, "thin": config.chains.thin},
        "hmc": by_hmc,
        "target by hmc": by_hmc,
    }
    method = "hmc" if name == "target by hmc" else name
    for_methods = jax.random.split(step.key)[1]
    networks = _starts(step, name) if name in TRAINED else None
    found, seconds = [], 0.0
    for part, (places, count) in enumerate(_lengths(config, name)):
        for_run, for_draws = jax.random.split(
            jax.random.fold_in(jax.random.fold_in(for_methods, _names(config).index(name)), part)
        )
        own = dict(arguments[name])
        if networks is not None:
            own["init"] = Draws(networks[places].params)
        if method in CHAINS:
            own["num_samples"] = count
        posterior = infer.multi_mode(getattr(infer, method), len(places))(
            for_run,
            here.problem if name in EXACT else here.training,
            progress=step.progress,
            engine=step.engine,
            run=step.work / f"{name.replace(' ', '-')}-{part}",
            **own,
        )
        seconds += (posterior.info or {}).get("seconds") or 0.0
        drawn = _drawn(posterior, for_draws, count)
        found.append(Draws(drawn.params, places[np.asarray(drawn.mode)]))
    return Draws.concatenate(found), seconds


def _starts(step: Step, name: str) -> Draws:
    """The trained networks that a method starts from, all methods' trained as one population."""
    config = step.config
    starts = config.repeats * config.modes
    begun = [name for name in _names(config) if name in TRAINED]
    networks = infer.ensemble(
        jax.random.split(step.key)[0],
        world(config).training,
        num_networks=starts * len(begun),
        progress=step.progress,
        engine=step.engine,
        run=step.work / "starts",
        **_train(config, config.train),
    )
    return networks[begun.index(name) * starts + np.arange(starts)]


def _lengths(config: Any, name: str) -> list[tuple[np.ndarray, int]]:
    """The starts of a method and how many draws are taken of each.

    Of several modes only a share of each is read: chains of that length do, but for the first of
    every repeat, which is its one mode.
    """
    starts = np.arange(config.repeats * config.modes, dtype=np.int32)
    share = -(-config.num_samples // config.modes)
    if name == "target by hmc":
        return [(starts, share)]
    if name not in CHAINS:
        return [(starts, config.num_samples)]
    first = starts % config.modes == 0
    return [(starts[first], config.num_samples), (starts[~first], share)]


def _drawn(found: Any, key: jax.Array, count: int) -> Draws:
    """So many draws of every mode, one mode after the other."""
    if isinstance(found, Draws):
        return Draws(found.params, found.mode)
    components = found.components if isinstance(found, Mixture) else (found,)
    keys = jax.random.split(key, len(components))
    drawn = [q.sample(k, count) for q, k in zip(components, keys, strict=True)]
    return Draws.concatenate(drawn, renumber=True)
