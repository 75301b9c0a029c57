"""Long computations in a process of their own, where XLA optimises programs as it does for users.

Tests compile many small programs without optimisation; for the few that compute for long this would
cost more than it saves.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

SCRIPT = "import json, {module} as m; print(json.dumps(m.{function}()))"


def at_full_speed(module: str, function: str) -> Any:
    """What a function without arguments returns, as JSON can hold it."""
    environment = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    environment["PYTHONPATH"] = str(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(module=module, function=function)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
