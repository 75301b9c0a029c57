"""A node that tests start with another Python: python node.py ADDRESS NAME CPUS GPUS."""

import signal
import sys

from ray._private.node import Node
from ray._private.parameter import RayParams


def main() -> None:
    parameters = RayParams(
        gcs_address=sys.argv[1],
        redis_address=sys.argv[1],
        num_cpus=int(sys.argv[3]),
        num_gpus=int(sys.argv[4]),
        object_store_memory=2**27,
        include_log_monitor=False,
        min_worker_port=0,
        max_worker_port=0,
        node_manager_port=0,
        node_name=sys.argv[2],
    )
    node = Node(parameters, head=False, shutdown_at_exit=True, spawn_reaper=False)
    print("up", flush=True)
    signal.sigwait({signal.SIGTERM})
    node.kill_all_processes(check_alive=False, allow_graceful=True)


if __name__ == "__main__":
    main()
