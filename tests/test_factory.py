"""What a user may write as MODULE:FACTORY, and what each mistake says."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from onebasin._factory import FactoryError, load_model

MODELS = """
import sys
import jax, jax.numpy as jnp
import flax.linen as nn

number = 3

def triple():
    return (lambda p, x: x @ p["w"]), {"w": jnp.ones((3, 2))}, jnp.ones((1, 3))

class Net:
    def init(self, key, inputs):
        return {"w": jax.random.normal(key, (inputs.shape[-1], 2))}
    def apply(self, params, inputs):
        return inputs @ params["w"]

def pair():
    return Net(), jnp.ones((1, 3))

def shapes():
    return Net(), jax.ShapeDtypeStruct((1, 3), jnp.float32)

def plain():
    return (Net().init, Net().apply), jnp.ones((1, 3))

def plain_triple():
    return [Net().init, Net().apply], {"w": jnp.ones((3, 2))}, jnp.ones((1, 3))

def linen():
    return nn.Dense(2), jnp.ones((1, 3))

def linen_triple():
    net = nn.Dense(2)
    return net, net.init(jax.random.key(0), jnp.ones((1, 3))), jnp.ones((1, 3))

class Group:
    inner = staticmethod(triple)

def raises():
    raise ValueError("no such data\\nsecond line")

def exits():
    sys.exit(3)

def needs(width):
    return width

def nothing():
    pass

def four():
    return 1, 2, 3, 4

def not_callable():
    return {}, {}, {}

def bad_init():
    return nn.Dense(2), "text"
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "user_models.py").write_text(MODELS)
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "needy.py").write_text("import package_that_nobody_has\n")
    (tmp_path / "syntax.py").write_text("def f(:\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "neighbour.py").write_text("WIDTH = 4\n")
    (tmp_path / "sub" / "random.py").write_text(
        "import jax.numpy as jnp\nfrom neighbour import WIDTH\n"
        "def factory():\n"
        "    return (lambda p, x: x * p), jnp.ones(WIDTH), jnp.ones(WIDTH)\n"
    )
    for name in ("user_models", "broken", "needy", "syntax", "neighbour"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


@pytest.mark.parametrize(
    "name",
    ["triple", "pair", "plain", "plain_triple", "shapes", "linen", "linen_triple", "Group.inner"],
)
@pytest.mark.parametrize("module", ["user_models", "user_models.py", "./user_models.py"])
def test_every_form_gives_a_model_that_runs(module: str, name: str) -> None:
    model = load_model(f"{module}:{name}")
    outputs = model.apply_fn(model.params, jnp.ones((1, 3)))
    assert outputs.shape == (1, 2)


def test_a_file_imports_its_neighbours_and_shadows_nobody() -> None:
    import random

    path = list(sys.path)
    assert load_model("sub/random.py:factory").params.shape == (4,)
    assert sys.modules["random"] is random
    assert sys.path == path


def test_seed_decides_the_parameters() -> None:
    first, again, other = (load_model("user_models:pair", seed).params["w"] for seed in (1, 1, 2))
    assert jnp.array_equal(first, again)
    assert not jnp.array_equal(first, other)


def test_shapes_stay_shapes() -> None:
    assert isinstance(load_model("user_models:shapes").inputs, jax.ShapeDtypeStruct)


MISTAKES = [
    ("user_models", "expected MODULE:FACTORY"),
    (":factory", "expected MODULE:FACTORY"),
    ("user_models:", "expected MODULE:FACTORY"),
    ("no_such_module:factory", "got the module 'no_such_module', and there is none in"),
    ("no_such.inner:factory", "got the module 'no_such.inner'"),
    ("no_such.py:factory", "check the path"),
    ("sub:factory", "define a function factory() in it"),
    ("broken:factory", "ZeroDivisionError: division by zero"),
    ("broken.py:factory", "ZeroDivisionError: division by zero"),
    ("syntax.py:factory", "SyntaxError"),
    ("needy:factory", "needs 'package_that_nobody_has', which is not installed"),
    ("needy.py:factory", "No module named 'package_that_nobody_has'"),
    ("user_models:tripel", "the nearest is 'triple'"),
    ("user_models:zzz", "name one of its functions, which are Group, Net, bad_init"),
    ("user_models:number", "is an int, expected a function without arguments"),
    ("user_models:raises", "raised ValueError: no such data:"),
    ("user_models:exits", "raised SystemExit: 3"),
    ("user_models:needs", "missing a required argument: 'width'"),
    ("user_models:nothing", "returned None, expected (apply_fn, params, inputs)"),
    ("user_models:four", "returned a tuple of 4 (int, int, int, int)"),
    ("user_models:not_callable", "returned a tuple of 3 (dict, dict, dict)"),
    ("user_models:bad_init", "whose .init(key, inputs) raised"),
]


@pytest.mark.parametrize(("name", "sentence"), MISTAKES, ids=[name for name, _ in MISTAKES])
def test_a_mistake_is_told_in_one_sentence(name: str, sentence: str) -> None:
    with pytest.raises(FactoryError) as caught:
        load_model(name)
    message = str(caught.value)
    assert sentence in message
    assert "\n" not in message
    assert message.endswith(".")
