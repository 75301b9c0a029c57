"""Tasks on Ray. Only small things pass through it: what a task computes, it writes to a file.

Plain tasks are enough: Ray keeps their processes, and so what they have compiled. A try that ends
with its worker or its node is made again elsewhere; one that goes on all the same does no harm,
since tasks write whole files under names that say what is in them.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from onebasin.engine import cluster, nodes
from onebasin.engine.attempt import write_log
from onebasin.engine.directory import disk_sentence
from onebasin.engine.errors import EngineError
from onebasin.engine.packing import Packed, pack, unpack
from onebasin.engine.refusals import refuse, refused
from onebasin.engine.task import Receipt, Task

LOST_TRIES = 20
IN_FLIGHT = 20
LEAST_IN_FLIGHT = 256
KEPT = 16
CROWD = 64
CROWD_SECONDS = 0.005
NODE = "ray.io/node-id"

_unpacked: collections.OrderedDict[str, Any] = collections.OrderedDict()


class RayShared(Packed):
    """A packed thing; a process unpacks it once, so that what it compiles for it stays valid."""

    def get(self) -> Any:
        """The thing itself."""
        if self.digest not in _unpacked:
            _unpacked[self.digest] = unpack(self)
            while len(_unpacked) > KEPT:
                _unpacked.popitem(last=False)
        _unpacked.move_to_end(self.digest)
        return _unpacked[self.digest]


def shared(ray: Any, value: Any, directory: str) -> RayShared:
    """A thing, packed once."""
    try:
        packed = pack(ray.cloudpickle.CloudPickler, value, Path(directory))
    except OSError as error:
        raise EngineError(
            f"the shared directory {directory} cannot be written ({error.strerror or error}): "
            "make room, or name another"
        ) from error
    return RayShared(packed.content, packed.digest, packed.directory)


@dataclasses.dataclass(frozen=True)
class Settings:
    """What makes an engine, wherever it is used: in the driver, or in a task that has tasks."""

    directory: str
    slots: int
    networks_per_task: int | None
    retries: int
    options: dict[str, Any]
    waiting: dict[str, Any]


@dataclasses.dataclass
class _Pending:
    task: Task
    tries: int
    lost: int


def make_call(package: str, version: str, directory: str) -> Callable[..., dict[str, Any]]:
    """The function that Ray runs; it carries all it needs, as a node may lack the package."""
    checked: list[bool] = []

    def call(key: str, number: int, content: bytes) -> dict[str, Any]:
        import os
        import socket
        from importlib import metadata

        if not checked:
            try:
                there = metadata.version(package)
            except metadata.PackageNotFoundError:
                there = None
            fault = None
            if there != version:
                has = f"has {package} {there}" if there else f"has no {package}"
                fault = f"{has}, and the driver has {version}: install {package}=={version} there"
            elif not os.path.isdir(directory):
                fault = f"does not see the shared directory {directory}: mount it there"
            if fault is not None:
                import ray

                node = ray.get_runtime_context().get_node_id()
                why = f"the node {ray.util.get_node_ip_address()} ({socket.gethostname()}) {fault}"
                return {"refused": why, "node": node}
            # By host: compiled programs are for one kind of processor.
            compiled = os.path.join(directory, "compiled", socket.gethostname())
            os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", compiled)
            os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
            # Draws that are matched side by side: here workers are.
            os.environ.setdefault("ONEBASIN_THREADS", "1")
            checked.append(True)
        import pickle

        from onebasin.engine.attempt import attempt

        def run() -> Any:
            shared, arguments = pickle.loads(content)
            return shared.get()(*arguments)

        return attempt(key, number, run, (), directory)

    return call


class RayQueue:
    """Tasks on a cluster, tried again when their worker is lost.

    Args:
        ray: Ray.
        settings: What the engine was opened with.
        remote: The function that Ray runs.
        tell: Called when a node was refused.
    """

    def __init__(self, ray: Any, settings: Settings, remote: Any, tell: Callable[[], None]):
        self._ray = ray
        self._settings = settings
        self._remote = remote
        self._tell = tell
        self._leave_out(refused(settings.directory))
        self._pending: dict[Any, _Pending] = {}
        self._function: Any = None
        self._sent: RayShared | None = None
        self._done = 0

    def submit(self, task: Task) -> None:
        """Sends a task to the cluster."""
        self._send(_Pending(task, 1, 0))

    def completed(self) -> Iterator[Receipt]:
        """Receipts as tasks end."""
        while self._pending:
            ready, rest = self._ray.wait(list(self._pending), num_returns=1)
            if rest:
                # Tiny tasks end in crowds: looking once for many of them keeps the driver fast.
                more = min(len(rest), CROWD)
                ready += self._ray.wait(rest, num_returns=more, timeout=CROWD_SECONDS)[0]
            for reference, found in zip(ready, self._outcomes(ready), strict=True):
                receipt = self._ended(self._pending.pop(reference), found)
                if receipt is not None:
                    yield receipt

    def close(self) -> None:
        """Takes back what has not begun."""
        for reference in self._pending:
            self._ray.cancel(reference)
        self._pending.clear()

    def _send(self, pending: _Pending) -> None:
        task = pending.task
        if task.function is not self._function:
            self._function = task.function
            self._sent = shared(self._ray, task.function, self._settings.directory)
        content = self._ray.cloudpickle.dumps((self._sent, task.arguments))
        self._pending[self._calls[task.waits].remote(task.key, pending.tries, content)] = pending

    def _outcomes(self, ready: list[Any]) -> list[Any]:
        """What tries told, or the error with which Ray lost them."""
        lost = self._ray.exceptions.RayError
        try:
            return list(self._ray.get(ready))
        except lost:
            found: list[Any] = []
            for reference in ready:
                try:
                    found.append(self._ray.get(reference))
                except lost as error:
                    found.append(error)
            return found

    def _ended(self, pending: _Pending, found: Any) -> Receipt | None:
        if isinstance(found, Exception):
            return self._lost(pending, found)
        if "refused" in found:
            self._refuse(found["node"], found["refused"])
            self._send(pending)
            return None
        key = pending.task.key
        where = found["seconds"], found["worker"], pending.tries
        if "value" in found:
            self._done += 1
            return Receipt(key, json.loads(found["value"]), *where)
        if found["errno"] is not None:
            directory = Path(self._settings.directory)
            raise EngineError(disk_sentence(directory, found["errno"], self._done))
        if pending.tries <= self._settings.retries:
            self._send(dataclasses.replace(pending, tries=pending.tries + 1))
            return None
        return Receipt(key, None, *where, found["error"], found["log"])

    def _refuse(self, node: str, why: str) -> None:
        """Leaves out a node that joined later and cannot take part."""
        if node in self._refused:
            return
        refuse(self._settings.directory, node, why)
        self._leave_out({**self._refused, node: why})
        if all(n["NodeID"] in self._refused for n in self._ray.nodes() if n["Alive"]):
            raise EngineError(why)
        self._tell()

    def _leave_out(self, refused: dict[str, str]) -> None:
        self._refused = refused
        others = {"label_selector": {NODE: f"!in({','.join(refused)})"}} if refused else {}
        self._calls = {
            waits: self._remote.options(**options, **others)
            for waits, options in (
                (False, self._settings.options),
                (True, self._settings.waiting),
            )
        }

    def _lost(self, pending: _Pending, error: Exception) -> Receipt | None:
        """The worker or its node is gone; no fault of the task, unless it happens each time."""
        if pending.lost < LOST_TRIES:
            time.sleep(min(0.05 * 2**pending.lost, 2.0) if pending.lost else 0)
            self._send(dataclasses.replace(pending, lost=pending.lost + 1))
            return None
        said = " ".join(f"{type(error).__name__}: {error}".split())
        tries = pending.tries + pending.lost
        log = write_log(self._settings.directory, pending.task.key, tries, str(error))
        return Receipt(pending.task.key, None, 0.0, "lost", tries, said, log)


class RayEngine:
    """A Ray cluster. Pickled, it goes on in a task of the same cluster.

    Args:
        settings: What it was opened with.
        shut: Ends what was started for it.
    """

    name = "ray"

    def __init__(self, settings: Settings, shut: Callable[[], None] | None = None):
        self.nested = shut is None
        self._ray = cluster.imported()
        self._settings = settings
        self._shut = shut
        call = make_call(nodes.PACKAGE, nodes.own_version(), settings.directory)
        # Ray would end a process with a GPU after each task, and with it what it has compiled.
        self._remote = self._ray.remote(max_calls=0)(call)
        self._told: set[str] = set()

    @property
    def directory(self) -> Path:
        """The folder that all workers see."""
        return Path(self._settings.directory)

    @property
    def slots(self) -> int:
        """How many tasks run at a time."""
        return self._settings.slots

    @property
    def window(self) -> int:
        """How many tasks are in flight: enough that no worker waits for the driver."""
        return max(LEAST_IN_FLIGHT, IN_FLIGHT * self.slots)

    @property
    def networks_per_task(self) -> int | None:
        """Networks, chains or draws of a task."""
        return self._settings.networks_per_task

    def queue(self) -> RayQueue:
        """A queue of its own for one piece of work."""
        return RayQueue(self._ray, self._settings, self._remote, self._tell)

    def share(self, value: Any) -> RayShared:
        """A thing as tasks can take it."""
        return shared(self._ray, value, self._settings.directory)

    def close(self) -> None:
        """Leaves the cluster, and ends it if it is a private one."""
        shut, self._shut = self._shut, None
        if shut is not None:
            self._tell()
            shut()

    def _tell(self) -> None:
        """Names the nodes that were refused, once each, where people see it."""
        if self.nested:
            return
        for node, why in refused(self._settings.directory).items():
            if node not in self._told:
                self._told.add(node)
                warnings.warn(f"{why}; the others go on without it", RuntimeWarning, stacklevel=2)

    def __enter__(self) -> RayEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return RayEngine, (self._settings,)
