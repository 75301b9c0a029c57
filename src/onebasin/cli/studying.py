"""`onebasin study` and `onebasin demo`: the published comparisons, run and continued."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from onebasin._core.text import readable, shortened
from onebasin.cli.messages import fail, print_json, working
from onebasin.cli.networks import JsonOption

INTERRUPTED = 130


def study(
    name: Annotated[str, typer.Argument(metavar="NAME", help="compact|variational|exploration.")],
    preset: Annotated[
        str, typer.Option(help="demo (minutes on a processor), laptop; paper and others: a GPU.")
    ] = "demo",
    out: Annotated[
        Path | None, typer.Option(help="The run's folder; runs/NAME-PRESET if left out.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="A YAML file with the fields that differ from the preset.")
    ] = None,
    fields: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=VALUE", help="One field, as hmc.num_samples=50."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="MODULE:FACTORY", help="A network of your own.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(metavar="MODULE:LOADER", help="Data of your own.")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with the run in --out as it was configured."),
    ] = False,
    join: Annotated[
        bool,
        typer.Option(
            "--join",
            help="Help the run that another process is doing in --out: do tasks that nobody has "
            "begun.",
        ),
    ] = False,
    helpers: Annotated[
        int,
        typer.Option(
            min=0,
            max=64,
            help="Further processes that share the tasks of this one, for a GPU that one leaves "
            "idle while it compiles.",
        ),
    ] = 0,
    stages: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...",
            help="Only these stages and those that they need; the rest waits for another command, "
            "perhaps on another machine.",
        ),
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(help="A folder for what was found, without draws: small enough to commit."),
    ] = None,
    engine: Annotated[
        str, typer.Option(help="Where it runs: local (this process) or ray (a cluster).")
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Of a running Ray cluster, or auto; without it --engine ray starts a private one "
            "on this machine.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run a study, or go on where it was stopped, and write its report.

    Stages that are done are kept; a stage is done again when what it reads has changed. Results do
    not depend on the engine.

    Example: `onebasin study compact --preset demo --out runs/compact`
    """
    from onebasin import report, studies
    from onebasin.engine import open_engine

    if helpers:
        # Read when a device is first used: whoever comes first would take most of a GPU's memory.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    folder = out if out is not None else Path("runs") / f"{name}-{preset}"
    with working(f"The study {name}", as_json, spinner=False):
        if join and (engine != "local" or address or keep is not None or resume):
            fail(
                "--join helps a run with this process alone: leave out --engine, --address, --keep "
                "and --resume"
            )
        if helpers and (join or engine != "local"):
            fail("--helpers goes with a run on the engine local: leave out --join and --engine")
        chosen = studies.get(name)
        if resume or join:
            if config or fields or model or data:
                fail(
                    f"--{'join' if join else 'resume'} takes the configuration that the run has, "
                    "and got another: leave out --config, --set, --model and --data"
                )
            written = studies.read_run(folder)
            if written["study"] != name:
                fail(
                    f"{folder} is a run of the study {shortened(written['study'])!r}, not of "
                    f"{name!r}"
                )
            settings = studies.validated(chosen.config, written["config"], str(folder))
        else:
            changes = dict(_field(item) for item in fields or ())
            changes |= {k: v for k, v in (("model", model), ("data", data)) if v is not None}
            settings = studies.load_config(chosen.config, name, preset, config, changes)
        names = None if stages is None else stages.replace(",", " ").split()
        if join:
            with _stoppable(folder):
                done = studies.help_run(
                    chosen, settings, folder, stages=names, progress=_shown(as_json), say=_say
                )
            if as_json:
                print_json({"run": str(folder), "tasks": done})
            return
        with _stoppable(folder):
            chosen.run(
                settings,
                folder,
                progress=_shown(as_json),
                say=_say,
                stages=names,
                num_helpers=helpers,
                engine=lambda work: open_engine(
                    engine,
                    directory=work,
                    address=address,
                    memory=settings.memory,
                    networks_per_task=settings.networks_per_task,
                    retries=0 if engine == "local" else 2,
                ),
            )
        if keep is not None:
            studies.copy_results(folder, keep)
        page = report.build([folder])
        found = studies.sections(folder)
    headlines = [headline for section in found.values() for headline in section.headlines]
    if as_json:
        numbers = [headline.model_dump() for headline in headlines]
        print_json({"run": str(folder), "report": str(page), "headlines": numbers})
        return
    for headline in headlines:
        typer.echo(readable(f"{headline.label}: {headline.value} ({headline.text})"))
    typer.echo(f"Report: {readable(page)}")


def demo(
    out: Annotated[Path, typer.Option(help="The folder of the run.")] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of all random numbers.")] = 0,
) -> None:
    """Bring HMC on handwritten digits into one basin, fit one Gaussian, and judge it: minutes.

    Example: `onebasin demo --out runs/demo`
    """
    from onebasin import _demo

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fail(
            f"got --out {out}, and no folder can be made there ({error.strerror}): "
            "name a folder that you may write to."
        )
    with working("The demo", spinner=False), _stoppable(out):
        _demo.run(out, seed, Console(), _say)


def _say(sentence: str) -> None:
    typer.echo(readable(sentence), err=True)


def _shown(as_json: bool) -> bool:
    return not as_json and Console(stderr=True).is_terminal


@contextlib.contextmanager
def _stoppable(folder: Path) -> Iterator[None]:
    """Ctrl-C leaves a run that the same command continues."""
    try:
        yield
    except KeyboardInterrupt:
        fail(f"stopped; the same command goes on with {folder}", code=INTERRUPTED)


def _field(item: str) -> tuple[str, Any]:
    from onebasin.studies.fields import FieldsError, parse_yaml

    name, equals, value = item.partition("=")
    if not equals or not name:
        raise ValueError(
            f"got --set {shortened(item)!r}, expected FIELD=VALUE, as hmc.num_samples=50"
        )
    try:
        return name, parse_yaml(value)
    except FieldsError as error:
        raise ValueError(f"got --set {shortened(item)!r}, which is no YAML: {error}") from error
