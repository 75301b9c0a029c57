"""How fast residual networks train, and how good they are: a checkpoint set, one after the other.

    python benchmarks/training.py --data DIR --out SET --json results/bench/training-gpu.json

DIR holds CIFAR-100 as `onebasin data get cifar100` leaves it, or unpacked, as bytes, in xtr.npy and
xte.npy with the labels in ytr.npy and yte.npy. Each network is ResNet-18 with BatchNorm (11.2 M
weights), trained by `onebasin.infer.ensemble` from a seed of its own and appended to the set; a run
that is killed goes on with the seeds that are not there. Settings were chosen on 5,000 training
images that were held out.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import onebasin as ob
from onebasin._core.origin import find_commit

# Of the bytes of a pixel.
MEAN = (129.3, 124.1, 112.4)
STD = (68.2, 65.4, 70.4)
# Multiplications and additions of a forward pass over one image, each as one operation.
FLOPS = 2 * 555_422_720
EXAMPLES = 1000


def network() -> ob.Net:
    """ResNet-18 on bytes."""
    return ob.nets.scale_inputs(ob.nets.resnet18(outputs=100), MEAN, STD)


def problem(inputs: Any, labels: Any, decay: float) -> ob.Problem:
    """What is learned: the prior is the weight decay."""
    return ob.Problem(
        network(),
        (inputs, labels),
        prior=ob.Normal((decay * len(labels)) ** -0.5),
        augment=ob.augment.crop_and_flip(padding=4),
        precision="bfloat16",
    )


@jax.jit
def right(params: Any, inputs: Any, labels: Any) -> tuple[jax.Array, jax.Array]:
    """How many answers are right, and the sum of negative log likelihoods."""
    apply = network().apply

    def part(batch: Any) -> Any:
        logits = apply(params, batch[0])
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), batch[1][:, None], 1)
        return jnp.sum(logits.argmax(-1) == batch[1]), -jnp.sum(chosen)

    def cut(x: Any) -> Any:
        return x.reshape(-1, EXAMPLES, *x.shape[1:])

    correct, loss = jax.lax.map(part, (cut(inputs), cut(labels)))
    return jnp.sum(correct), jnp.sum(loss)


def load(folder: pathlib.Path) -> Any:
    """Bytes and labels, from arrays that lie there or from the data set."""
    if (folder / "xtr.npy").exists():
        return [np.load(folder / f"{name}.npy") for name in ("xtr", "ytr", "xte", "yte")]
    data = ob.data.load("cifar100", root=folder)
    found: list[Any] = []
    for part in (data.train, data.test):
        if part is None:
            raise SystemExit(f"{folder} holds a part of CIFAR-100 alone, expected all of it")
        found += [np.round(np.asarray(part[0]) * 255).astype(np.uint8), part[1]]
    return found


def main() -> None:
    """Trains what is missing and prints a line for each network."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--num", type=int, default=40)
    parser.add_argument("--epochs", type=int, default=24)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--learning-rate", type=float, default=0.2)
    parser.add_argument("--decay", type=float, default=2e-3)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no network after this")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    began = time.perf_counter()
    inputs, labels, test, answers = load(options.data)
    own = problem(inputs, labels, options.decay)
    test, answers = jnp.asarray(test), jnp.asarray(answers)
    networks = ob.store.CheckpointSet(options.out)
    config = {k: v for k, v in vars(options).items() if k in ("epochs", "batch_size", "decay")}
    rows = []
    for seed in range(options.num):
        if time.perf_counter() - began > options.seconds:
            break
        with networks.claim(seed) as wanted:
            if not wanted:
                continue
            start = time.perf_counter()
            draws = ob.infer.ensemble(
                jax.random.key(seed),
                own,
                num_networks=1,
                epochs=options.epochs,
                batch_size=options.batch_size,
                optimizer=ob.infer.sgd(options.learning_rate),
            )
            jax.block_until_ready(draws.params)
            seconds = time.perf_counter() - start
            correct, loss = right(draws[0], test, answers)
            accuracy = float(correct) / len(answers)
            networks.append(
                draws[0], seed=seed, epochs=options.epochs, accuracy=accuracy, config=config
            )
        images = options.epochs * (len(labels) // options.batch_size) * options.batch_size
        rows.append(
            {
                "seed": seed,
                "seconds": round(seconds, 2),
                "images_per_second": round(images / seconds),
                "accuracy": accuracy,
                "nll": float(loss) / len(answers),
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    total = time.perf_counter() - began
    print(f"{len(rows)} networks in {total:.1f} s, {networks}", flush=True)
    if options.json:
        best = max((row["images_per_second"] for row in rows), default=0)
        found = {
            "device": jax.devices()[0].device_kind,
            "jax": jax.__version__,
            "commit": find_commit(),
            "settings": {**config, "learning_rate": options.learning_rate},
            "seconds": round(total, 1),
            "tflops_trained": round(3 * FLOPS * best / 1e12, 1),
            "networks": rows,
        }
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
