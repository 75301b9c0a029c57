"""The network and the data that a study is about: of a preset, or a user's own."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin import data
from onebasin._factory import FactoryError, converted, describe, is_torch, load_returned, one_line
from onebasin.nets import Net, in_bfloat16, mlp
from onebasin.nets.net import is_net, net_of
from onebasin.studies.config import StudyConfig
from onebasin.studies.errors import StudyError
from onebasin.studies.fitting import check_fit
from onebasin.symmetry import Symmetry, discover

Arrays = tuple[Any, Any]


@dataclasses.dataclass(frozen=True, eq=False)
class Setting:
    """A network with training and test data.

    Attributes:
        net: The network.
        train: Training inputs and labels.
        test: Test inputs and labels.
        image_shape: Height, width and channels of the inputs, where they are images of ours.
    """

    net: Net
    train: Arrays
    test: Arrays
    image_shape: tuple[int, ...] | None = None

    def params(self, key: jax.Array | None = None) -> Any:
        """A network as it is initialised."""
        return self.net.init(jax.random.key(0) if key is None else key, self.train[0][:1])

    def trained(self, train_in: str | None) -> Net:
        """The network as it is trained: in half precision if that is asked for."""
        return self.net if train_in is None else in_bfloat16(self.net)

    @functools.cached_property
    def symmetry(self) -> Symmetry:
        """The network's group."""
        return discover(self.net.apply, self.params(), self.train[0][:2])


def load_data(config: StudyConfig, flat: bool = True) -> tuple[Arrays, Arrays]:
    """Training and test data: inputs as vectors where a network wants them flat."""
    if config.data is not None:
        train, test = _own_data(config.data)
    else:
        found = data.load(config.dataset)
        train, test = found.part("train"), found.part("test")

    def part(arrays: Arrays, size: int | None) -> Arrays:
        x, y = (np.asarray(a)[:size] for a in arrays)
        own = config.data is not None
        return jnp.asarray(x.reshape(len(x), -1) if flat and not own else x), jnp.asarray(y)

    return part(train, config.train_size), part(test, config.test_size)


def mlp_setting(config: StudyConfig, hidden: list[int], activation: str = "relu") -> Setting:
    """The user's own model, or a fully connected one, with its data."""
    if config.model is not None:
        net, example = _own_model(config.model)
        train, test = load_data(config, flat=False)
        source = config.data or config.dataset
        check_fit(net, config.model, source, (train, test), example)
        return Setting(net, train, test)
    train, test = load_data(config, flat=False)
    shape, images = train[0].shape[1:], None
    if config.data is None:
        images = shape if len(shape) > 1 else None
        train, test = ((x.reshape(len(x), -1), y) for x, y in (train, test))
    classes = int(np.max(np.asarray(train[1]))) + 1
    return Setting(mlp(tuple(hidden), classes, activation), train, test, images)


def _own_model(name: str) -> tuple[Net, Any]:
    """A user's network, and the inputs that its factory gives, if it gives any."""
    expected = (
        "(module, inputs) with a PyTorch module, (net, inputs), or a net: .init(key, inputs) and "
        ".apply(params, inputs) -> logits, or these two functions as a pair"
    )
    try:
        found = load_returned(name, "factory", expected)
        if isinstance(found, tuple) and len(found) == 2 and is_torch(found[0]):
            return converted(*found, name)[0], found[1]
    except FactoryError as error:
        raise StudyError(str(error)) from error
    found, example = net_of(found), None
    if isinstance(found, tuple) and len(found) == 2 and not is_net(found):
        found, example = net_of(found[0]), found[1]
    if not is_net(found):
        raise StudyError(f"{name} returned {describe(found)}, expected {expected}")
    return Net(found.init, found.apply), example


def _own_data(name: str) -> tuple[Arrays, Arrays]:
    expected = "((inputs, labels), (test_inputs, test_labels)), all arrays"
    try:
        found = load_returned(name, "loader", expected)
        (x, y), (xt, yt) = found
    except FactoryError as error:
        raise StudyError(str(error)) from error
    except (TypeError, ValueError):
        raise StudyError(f"{name} returned {describe(found)}, expected {expected}") from None
    return _labelled(name, x, y), _labelled(name, xt, yt)


def _labelled(name: str, inputs: Any, labels: Any) -> Arrays:
    """Inputs and labels as arrays, once they are seen to be some, and as many."""
    try:
        x, y = np.asarray(inputs), np.asarray(labels)
    except (TypeError, ValueError) as error:
        raise StudyError(
            f"{name} gave {describe(inputs)} as inputs and {describe(labels)} as labels, expected "
            f"arrays ({one_line(error)})"
        ) from error
    numbers = jnp.issubdtype(x.dtype, jnp.number) or x.dtype == bool
    if not numbers or not x.ndim or not len(x):
        raise StudyError(
            f"{name} gave inputs of shape {x.shape} and type {x.dtype}, expected numbers, with "
            "one example or more"
        )
    if y.shape != (len(x),) or not np.issubdtype(y.dtype, np.integer):
        raise StudyError(
            f"{name} gave {len(x)} inputs with labels of shape {y.shape} and type {y.dtype}, "
            f"expected as many integer labels as inputs, of shape ({len(x)},)"
        )
    return x, y
