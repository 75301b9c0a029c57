"""Many draws within a budget of memory: how much is taken, and that the outcome is the same."""

import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import onebasin as ob
from onebasin.engine import open_engine

INPUTS = jax.random.normal(jax.random.key(0), (20, 6))
# What libraries take when they first see large arrays: buffers for products, above all.
LIBRARIES = 48 * 2**20


def population(kind, count=24):
    """A network whose draws are matched as rows, as chains or in visits, and draws far apart."""
    net, example = ob.nets.mlp(hidden=(12,), outputs=3), INPUTS
    if kind == "signs":
        net = ob.nets.mlp(hidden=(12,), outputs=3, activation="tanh")
    elif kind == "visits":
        net = ob.nets.mlp(hidden=(8, 7), outputs=3)
    elif kind == "chains":
        net, example = ob.nets.optunet(), jnp.zeros((1, 28, 28, 1))
    params = net.init(jax.random.key(1), example)
    keys = jax.random.split(jax.random.key(2), count)
    draws = ob.Draws(jax.vmap(lambda k: net.init(k, example))(keys))
    return net, ob.discover(net.apply, params, example), draws


def assert_same(found, expected):
    for a, b in zip(*map(jax.tree.leaves, (found.elements, expected.elements)), strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(*map(jax.tree.leaves, (found.draws, expected.draws)), strict=True):
        np.testing.assert_array_equal(a, b)
    assert found.moved == expected.moved
    np.testing.assert_allclose(found.history, expected.history, rtol=1e-12)


@pytest.mark.parametrize("scaling", ["min-mass", None])
@pytest.mark.parametrize("reference", ["mean", "first", "leave-one-out", "given"])
@pytest.mark.parametrize("kind", ["rows", "signs", "chains", "visits"])
def test_a_budget_changes_nothing(kind, reference, scaling):
    _, symmetry, draws = population(kind)
    options = {
        "reference": draws[3] if reference == "given" else reference,
        "scaling": scaling,
        "max_rounds": 4,
    }
    expected = ob.align_many(symmetry, draws, **options)
    for memory in (least(symmetry, draws, **options), 2**30):
        assert_same(ob.align_many(symmetry, draws, memory=memory, **options), expected)


def least(symmetry, draws, **options):
    """The least budget that is taken."""
    with pytest.raises(ValueError, match="is too little") as error:
        ob.align_many(symmetry, draws, memory=1, **options)
    said = str(error.value)
    assert "raise memory=" in said
    return int(said.split(" take ")[1].split(" ")[0].replace(",", ""))


def test_costs_on_data_see_the_same_draws():
    net, symmetry, draws = population("visits")
    options = {"cost": "activations", "apply_fn": net.apply, "inputs": INPUTS, "max_rounds": 3}
    expected = ob.align_many(symmetry, draws, **options)
    memory = least(symmetry, draws, **options)
    assert_same(ob.align_many(symmetry, draws, memory=memory, **options), expected)


def test_what_a_budget_does_not_bound_is_refused(tmp_path):
    _, symmetry, draws = population("rows", 4)
    with (
        open_engine("local", directory=tmp_path) as engine,
        pytest.raises(ValueError, match=r"memory= with engine=.*networks_per_task="),
    ):
        ob.align_many(symmetry, draws, memory=2**30, engine=engine)
    mixture = ob.Mixture([ob.Gaussian(p, 0.1) for p in draws])
    with pytest.raises(ValueError, match="memory= with a Mixture"):
        ob.align_many(symmetry, mixture, cost="wasserstein", memory=2**30)


MEASURE = """
import json, pathlib, re, sys
import jax, jax.numpy as jnp, numpy as np
import onebasin as ob
from onebasin.symmetry.host import aligned

hidden, inputs, count, memory = json.loads(sys.argv[1])
net, example = ob.nets.mlp(hidden=tuple(hidden), outputs=10), jnp.zeros((1, inputs))
params = net.init(jax.random.key(0), example)
symmetry = ob.discover(net.apply, params, example)
rng = np.random.default_rng(0)

def draws(count):
    def leaf(one):
        # Into memory that JAX takes as it is: a copy would raise the peak before it is looked at.
        many = aligned((count, *one.shape), np.float32)
        for row in many:
            row[...] = one + 0.002 * rng.standard_normal(one.shape, np.float32)
        return jax.device_put(many, may_alias=True)
    return ob.Draws(jax.tree.map(leaf, params))

def peak():
    # The peak that getrusage knows is that of the parent, if it was higher.
    status = pathlib.Path("/proc/self/status").read_text()
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+) kB", status)[1])

options = {} if memory is None else {"memory": memory}
ob.align_many(symmetry, draws(3), max_rounds=2)
given = draws(count)
size = sum(leaf.nbytes for leaf in jax.tree.leaves(given.params))
before = peak()
ob.align_many(symmetry, given, max_rounds=1, **options)
print(json.dumps([size, peak() - before]))
"""


def taken(hidden, inputs, count, memory):
    """Bytes of the draws, and what the peak of memory rose by beside what was returned."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, json.dumps([hidden, inputs, count, memory])],
        capture_output=True,
        text=True,
        check=True,
    )
    size, risen = json.loads(done.stdout.splitlines()[-1])
    return size, risen - size


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is read as Linux tells it")
@pytest.mark.parametrize(
    ("hidden", "inputs", "count"), [((64,), 4096, 160), ((130, 130), 2048, 160)]
)
def test_the_peak_of_memory_stays_within_the_budget(hidden, inputs, count):
    memory = 96 * 2**20
    size, free = taken(hidden, inputs, count, None)
    assert size > 150 * 2**20
    assert free > memory + LIBRARIES
    _, bound = taken(hidden, inputs, count, memory)
    assert bound < memory + LIBRARIES
