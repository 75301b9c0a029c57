"""How many cores the work of this process may take."""

import os


def num_cores() -> int:
    """What `ONEBASIN_THREADS` says, as a worker of an engine has its share; else all there are."""
    return int(os.environ.get("ONEBASIN_THREADS") or os.cpu_count() or 1)
