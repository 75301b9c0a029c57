"""The cluster that is started here: on the loopback address, by token, and gone with its driver."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from onebasin.engine import Task, open_engine, run_tasks

from . import failing, processes

THOROUGH = bool(os.environ.get("ONEBASIN_THOROUGH"))
TASKS = 10_000 if THOROUGH else 1500
RECEIPTS = 100_000 if THOROUGH else 3000


def listening(pids: set[int]) -> dict[str, list[str]]:
    """The addresses on which some processes listen."""
    inodes = set()
    for pid in pids:
        try:
            links = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()]
        except OSError:
            continue
        inodes |= {m[1] for link in links if (m := re.fullmatch(r"socket:\[(\d+)\]", link))}
    found: dict[str, list[str]] = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                host, _, port = fields[1].partition(":")
                found.setdefault(host, []).append(port)
    return found


LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}


def test_it_listens_to_nobody_else_and_dies_with_its_driver(
    tmp_path: Path, short_path: Path
) -> None:
    # Who is killed leaves the folder of its logs behind.
    other = {"RAY_grpc_client_keepalive_time_ms": "300000", "TMPDIR": str(short_path)}
    driver = processes.start("ray", "none", tmp_path, 400, 0.05, **other)
    assert driver.stdout is not None
    assert driver.stdout.readline().startswith(b"open")
    assert driver.stdout.readline().strip().isdigit()
    started = processes.below(driver.pid)
    titles = " ".join(processes.title(pid) for pid in started)
    assert "gcs_server" in titles
    assert "raylet" in titles
    for pid in started:
        if "gcs_server" in processes.title(pid) or "raylet" in processes.title(pid):
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            assert b"RAY_grpc_client_keepalive_time_ms=10000" in variables
    hosts = listening({driver.pid, *started})
    assert hosts
    assert set(hosts) <= LOOPBACK

    # Somebody else on this machine, who knows the address but has no token.
    port = re.findall(r"--gcs-address=127\.0\.0\.1:(\d+)", titles)[0]
    program = f"import ray; ray.init(address='127.0.0.1:{port}'); print('inside')"
    stranger = {k: v for k, v in os.environ.items() if not k.startswith("RAY_AUTH")}
    stranger |= {"HOME": str(tmp_path), "RAY_AUTH_MODE": "disabled"}
    done = subprocess.run(
        ["timeout", "6", sys.executable, "-c", program],
        env=stranger,
        capture_output=True,
        text=True,
    )
    assert "inside" not in done.stdout
    assert "token" in done.stderr.lower()

    driver.send_signal(signal.SIGKILL)
    driver.communicate()
    # Ray's agents, which listen to nobody, notice later.
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline and _alive(started):
        time.sleep(0.2)
    assert not _alive(started)


def _alive(pids: set[int]) -> list[str]:
    titles = [processes.title(pid) for pid in pids]
    return [title for title in titles if title and not title.endswith("Agent")]


def resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def tasks(count: int):
    return (Task(f"tiny/{i}", failing.tiny, (i,)) for i in range(count))


def test_tiny_tasks_keep_up_with_ray_and_receipts_leave_nothing_behind(
    nodes: Any, tmp_path: Path
) -> None:
    import ray

    with open_engine("ray", address=nodes.address, directory=tmp_path) as engine:
        plain = ray.remote(failing.tiny)
        rates = {"ours": 0.0, "ray": 0.0}
        sum(1 for _ in run_tasks(engine, tasks(200)))
        ray.get([plain.remote(i) for i in range(200)])
        # By turns: others share the machine.
        for _ in range(2):
            began = time.perf_counter()
            assert sum(1 for _ in run_tasks(engine, tasks(TASKS // 2))) == TASKS // 2
            rates["ours"] += 1 / (time.perf_counter() - began)
            began = time.perf_counter()
            ray.get([plain.remote(i) for i in range(TASKS // 2)])
            rates["ray"] += 1 / (time.perf_counter() - began)
        print(f"{TASKS} tasks, rates by turns: {rates}, ratio {rates['ours'] / rates['ray']:.2f}")
        assert rates["ours"] > 0.5 * rates["ray"]

        seen = []
        for number, receipt in enumerate(run_tasks(engine, tasks(RECEIPTS))):
            assert receipt.error is None
            if number % (RECEIPTS // 10) == 0:
                seen.append(resident())
        growth = seen[-1] - seen[2]
        print(f"{RECEIPTS} receipts, driver's memory: {[s // 2**20 for s in seen]} MiB")
        assert growth < 8 * 2**20
