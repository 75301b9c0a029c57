"""A small study with everything that a report can show."""

from pathlib import Path

import numpy as np

from onebasin.studies import (
    Axis,
    Cell,
    Column,
    Figure,
    Frame,
    Map,
    Panel,
    Row,
    Series,
    Step,
    Study,
    StudyConfig,
    Table,
)
from onebasin.studies.config import Part

NASTY = "</script><b>\"R&D\" 'x'</b>"


class Sampler(Part):
    num_chains: int = 4
    num_samples: int = 100


class ToyConfig(StudyConfig):
    width: int = 16
    sampler: Sampler = Sampler()
    stop: bool = False


toy = Study(
    "toy",
    "One Gaussian is enough",
    "Can a posterior with thousands of modes be told as one Gaussian, once the symmetries are "
    "taken out?\n\nA toy with made-up numbers: it shows all that a report can show.",
    ToyConfig,
)

METHODS = ("HMC", "Deep ensemble", "SWAG", "Mean field")


@toy.stage("The posterior before and after")
def picture(step: Step) -> None:
    rng = np.random.default_rng(step.config.seed)
    step.headline("Test accuracy", "0.9897", "One aligned Gaussian, 30 draws")
    step.headline("Agreement with HMC", "97.2 %", "HMC agrees with itself at 97.9 %")
    step.headline("Barrier left", "0.004 nats", "was 1.31 before alignment")
    step.headline("Size", "1 / 512", "against keeping every draw")
    frames = []
    for number, t in enumerate(np.linspace(0, 1, 5)):
        centre = (1 - t) * 3 * rng.permutation([-1.0, 0.0, 1.0])
        clouds = [
            Series(
                name=f"chain {i}",
                group=f"chain {i}",
                x=centre[i] + 0.5 * rng.standard_normal(60),
                y=centre[i - 1] + 0.5 * rng.standard_normal(60),
                style="points",
            )
            for i in range(3)
        ]
        frames.append(Frame(label=f"{number} of 4 steps", series=clouds))
    ends = [
        Panel(
            title=title,
            x=Axis(label="first component"),
            y=Axis(label="second component"),
            series=frames[at].series,
        )
        for title, at in (("Before alignment", 0), ("After alignment", -1))
    ]
    step.show(
        Figure(
            name="clouds",
            title="Three chains lie in three basins, and then in one",
            text="Each point is a draw, in the first two principal components of the weights.",
            panels=ends,
        ),
        Figure(
            name="walk",
            title="Draws wander into one basin as the alignment goes on",
            text="Move the slider to see each step.",
            panels=[Panel(x=ends[0].x, y=ends[0].y)],
            frames=frames,
            slider="Alignment step",
        ),
    )


@toy.stage("How well the Gaussian predicts", needs=("picture",), reads=("width",))
def quality(step: Step) -> None:
    shift = 0.0002 * (step.config.width - 16)
    columns = [
        Column(key="acc", label="Accuracy", better="higher"),
        Column(key="nll", label="NLL (nats)", better="lower", note="On the test set."),
        Column(key="ece", label="ECE", digits=3, better="lower"),
        Column(key="bytes", label="Bytes", digits=0),
    ]
    rows = []
    for number, method in enumerate(METHODS):
        acc = 0.99 - 0.004 * number + shift
        rows.append(
            Row(
                label=method,
                group="Draws" if number < 2 else "Gaussians",
                cells={
                    "acc": Cell(
                        value=acc, low=acc - 0.004, high=acc + 0.003, published=acc - 0.001
                    ),
                    "nll": Cell(
                        value=0.031 + 0.01 * number,
                        low=0.028 + 0.01 * number,
                        high=0.035 + 0.01 * number,
                    )
                    if number != 1
                    else Cell(value=0.052, note="One of ten networks left out."),
                    "ece": Cell(value=0.012 + 1e-5 * number),
                    "bytes": Cell(value=102400 * 10**number),
                },
            )
        )
    last = {"acc": Cell(value=0.9897), "nll": Cell(value=3.1e-7)}
    rows.append(Row(label="Ours, aligned", group="Gaussians", cells=last, emphasis=True))
    step.say("One Gaussian predicts as well as the draws it was fitted to, with `30` draws.")
    step.show(
        Table(
            name="quality",
            title="The aligned Gaussian is as good as HMC",
            text="Means over five seeds.",
            columns=columns,
            rows=rows,
        ),
        Table(
            name="nasty",
            title=NASTY,
            columns=[Column(key="v", label=NASTY)],
            rows=[Row(label=NASTY, cells={"v": Cell(value=1.0, note=NASTY)})],
        ),
    )
    step.show(
        Figure(
            name="quality",
            title="The same name as the table beside it",
            panels=[
                Panel(
                    x=Axis(label="width"),
                    y=Axis(label="agreement"),
                    series=[Series(name="one Gaussian", x=[8, 16], y=[0.9, 0.95])],
                )
            ],
        )
    )


@toy.stage("What one meets on the way", reads=("sampler", "stop"))
def curves(step: Step) -> None:
    if step.config.stop:
        raise KeyboardInterrupt
    t = np.linspace(0, 1, 21)
    hill = np.sin(np.pi * t) ** 2
    lines = []
    for number, method in enumerate(METHODS):
        before, after = (0.05 + (1.2 - 0.2 * number) * hill), 0.05 + 0.02 * (number + 1) * hill
        lines += [
            Series(name="before", group=method, x=t, y=before, dash=True),
            Series(name="after", group=method, x=t, y=after, low=after * 0.8, high=after * 1.3),
        ]
    steps = np.geomspace(1, 1e4, 9)
    falls = [
        Series(
            name=m,
            group=m,
            x=steps,
            y=2 / steps ** (0.3 + 0.1 * i),
            style="line+points",
            low=1.6 / steps ** (0.3 + 0.1 * i),
            high=2.5 / steps ** (0.3 + 0.1 * i),
        )
        for i, m in enumerate(METHODS[:3])
    ]
    layers = ["first", "second", "last"]
    bars = [
        Series(
            name=m,
            group=m,
            x=[0, 1, 2],
            y=[3 - i, 2.5, 1 + i],
            labels=layers,
            style="bars",
            low=[2.7 - i, 2.2, 0.8 + i],
            high=[3.3 - i, 2.8, 1.2 + i],
        )
        for i, m in enumerate(METHODS[:3])
    ]
    grid = np.linspace(-2, 2, 25)
    x, y = np.meshgrid(grid, grid)

    def landscape(width: float) -> Map:
        z = 1e-3 + 4 * (1 - np.exp(-((x - 1) ** 2 + y**2) / width))
        return Map(
            x=grid,
            y=grid,
            z=z * (1 - 0.99 * np.exp(-((x + 1) ** 2 + y**2))),
            label="loss (nats)",
            log=True,
        )

    points = Series(
        name="networks", x=[1, -1, 0], y=[0, 0, 1.2], labels=["A", "B", NASTY], style="points"
    )
    way = Series(name="path", x=[1, 0, -1], y=[0, 0.8, 0], style="line")
    axes = {"x": Axis(label="first direction"), "y": Axis(label="second direction")}
    empirical = [
        Series(name="train", x=np.arange(8), y=np.arange(8) / 7, style="step"),
        Series(
            name="test",
            x=np.arange(8),
            y=(np.arange(8) / 7) ** 2,
            style="step",
            low=(np.arange(8) / 7) ** 2 * 0.8,
            high=np.minimum(1, (np.arange(8) / 7) ** 2 * 1.2),
        ),
        Series(
            name="single",
            x=[2, 4, 6],
            y=[0.3, 0.5, 0.9],
            low=[0.2, 0.4, 0.8],
            high=[0.4, 0.6, 1.0],
            labels=["a", "b", NASTY],
            style="points",
        ),
    ]
    step.show(
        Figure(
            name="ways",
            title="The barrier is gone after alignment",
            text="Loss on the straight line between two networks, and how the error falls.",
            panels=[
                Panel(
                    title="Loss on the way",
                    x=Axis(label="t"),
                    y=Axis(label="loss (nats)"),
                    series=lines,
                ),
                Panel(
                    title="Error against cost",
                    x=Axis(label="gradients", log=True),
                    y=Axis(label="error", log=True),
                    series=falls,
                ),
                Panel(
                    title="Per layer", x=Axis(label="layer"), y=Axis(label="distance"), series=bars
                ),
            ],
        ),
        Figure(
            name="landscape",
            title="Two networks share one valley",
            panels=[Panel(**axes, series=[way, points], map=landscape(1.0))],
        ),
        Figure(
            name="temperatures",
            title="The valley widens as the temperature falls",
            text="Loss in the plane of three networks.",
            panels=[
                Panel(title="In the plane", **axes),
                Panel(
                    title="Share of examples",
                    x=Axis(label="level"),
                    y=Axis(label="share"),
                    series=empirical,
                ),
            ],
            frames=[
                Frame(label=f"T = {t:g}", series=[points], map=landscape(1 / t))
                for t in (1.0, 0.5, 0.25, 0.125)
            ],
            slider="Temperature",
        ),
    )


def run(folder: Path, **fields: object) -> Path:
    """A finished run; `stop=True` leaves it before its last stage."""
    try:
        return toy.run(ToyConfig.model_validate(fields), folder)
    except KeyboardInterrupt:
        return folder
