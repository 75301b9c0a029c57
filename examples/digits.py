"""Small classifiers of scikit-learn's handwritten digits, trained from different starts.

Run `python examples/digits.py`; it writes two networks and a population of eight into
`onebasin-demo`. `factory` and `loader` tell the commands `onebasin align` and `onebasin barrier`
about the model and the data.
"""

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax
from sklearn.datasets import load_digits

import onebasin as ob
from onebasin.store import save_params

TEST = 360
NETWORKS = 8
Data = tuple[jax.Array, jax.Array]


def factory() -> tuple[ob.Net, jax.Array]:
    """The model: a perceptron, and some of the inputs that it takes."""
    (images, _), _ = loader()
    return ob.nets.mlp(hidden=(64, 64), outputs=10), images[:100]


def loader() -> tuple[Data, Data]:
    """The data: images (example, 64) between 0 and 1 and their labels, to train on and to test."""
    images, labels = load_digits(return_X_y=True)
    order = jax.random.permutation(jax.random.key(0), len(labels))
    images, labels = jnp.asarray(images / 16, jnp.float32)[order], jnp.asarray(labels)[order]
    return (images[TEST:], labels[TEST:]), (images[:TEST], labels[:TEST])


def train(key: jax.Array, net: ob.Net, data: Data, steps: int) -> Any:
    """One network: Adam with weight decay, on random batches."""
    images, labels = data
    start, batches = jax.random.split(key)
    params = net.init(start, images[:1])
    optimizer = optax.adamw(optax.cosine_decay_schedule(3e-3, steps), weight_decay=0.1)

    def loss(params: Any, which: jax.Array) -> jax.Array:
        logits = net.apply(params, images[which])
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels[which]).mean()

    def step(state: tuple[Any, Any, jax.Array], _: None) -> tuple[tuple[Any, Any, jax.Array], None]:
        params, memory, key = state
        key, own = jax.random.split(key)
        which = jax.random.choice(own, len(labels), (100,))
        updates, memory = optimizer.update(jax.grad(loss)(params, which), memory, params)
        return (optax.apply_updates(params, updates), memory, key), None

    state = (params, optimizer.init(params), batches)
    (params, _, _), _ = jax.lax.scan(step, state, length=steps)
    return params


def main(out: Path, steps: int) -> None:
    """Train, and write the files."""
    net, _ = factory()
    data, (images, labels) = loader()
    keys = jax.random.split(jax.random.key(1), NETWORKS)
    params = jax.jit(jax.vmap(partial(train, net=net, data=data, steps=steps)))(keys)
    draws = ob.Draws(params, mode=jnp.arange(NETWORKS))
    for number, one in enumerate(draws):
        accuracy = jnp.mean(net.apply(one, images).argmax(-1) == labels)
        print(f"network {number}: {accuracy:.1%} of the test images right")

    out.mkdir(parents=True, exist_ok=True)
    save_params(out / "a.safetensors", draws[0])
    save_params(out / "b.safetensors", draws[1])
    save_params(out / "draws.safetensors", draws)
    print(f"Wrote a.safetensors, b.safetensors and draws.safetensors into {out}.")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("onebasin-demo"), help="the folder")
    parser.add_argument("--steps", type=int, default=1000, help="of training")
    arguments = parser.parse_args()
    main(arguments.out, arguments.steps)
