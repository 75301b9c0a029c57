"""Every model of the zoo: the group that it has, proved, and the same after a trip through JSON."""

from collections import Counter

import jax
import numpy as np
import pytest
from zoo import CASES, THOROUGH, Case

import onebasin as ob

# ResNet20 has the same blocks, with the same normalisations.
ASKED_FOR = {"resnet-group-relu", "resnet-frn-silu", "resnet-layer-relu", "resnet-batch-relu"}
PARAMETERS = [
    pytest.param(case, id=case.name, marks=[pytest.mark.slow] if case.slow else [])
    for case in CASES
    if THOROUGH or case.name not in ASKED_FOR
]


@pytest.mark.parametrize("case", PARAMETERS)
def test_group(case: Case) -> None:
    apply_fn, params, inputs = case.build()
    sym = ob.discover(apply_fn, params, inputs)
    found = [(factor.size, factor.copies, factor.kinds) for factor in sym.factors]
    if case.factors is not None:
        assert Counter(found) == Counter(case.factors)
        assert sym.scaling_dimension() == case.scaling_dimension
    elif case.scaling_dimension is not None:
        # The whole group is not of the form looked for: a part of it must do.
        assert sym.scaling_dimension() <= case.scaling_dimension

    names = [factor.name for factor in sym.factors]
    assert len(set(names)) == len(names)

    # NNX computes its LayerNorm in single precision, whatever it is given.
    single = case.float32_only or case.name == "encoder-nnx"
    change = ob.check_symmetry(sym, apply_fn, params, inputs, seed=1, power=not case.slow)
    assert change < (1e-4 if single else 1e-9)
    assert_same_after_json(sym, params)


def assert_same_after_json(sym: ob.Symmetry, params: object) -> None:
    again = ob.Symmetry.from_json(sym.to_json())
    assert again.factors == sym.factors
    assert again.to_json() == sym.to_json()
    assert str(again) == str(sym)
    g = jax.tree.map(np.asarray, sym.random(jax.random.key(2)))
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(params)]
    for a, b in zip(
        sym.act_on_leaves(g, leaves, np), again.act_on_leaves(g, leaves, np), strict=True
    ):
        np.testing.assert_array_equal(a, b)
