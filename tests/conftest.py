import gc
import os
from collections.abc import Iterator

import jax
import pytest
from hypothesis import HealthCheck, settings

# The environment as well: tests start other processes.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Tests compile many small programs and run each a few times: optimising them would cost more. XLA
# ends a process that it gives a flag it does not know, so the last one is for versions that had it.
FLAGS = ["--xla_backend_optimization_level=0", "--xla_llvm_disable_expensive_passes=true"]
if jax.__version_info__ < (0, 11):
    FLAGS.append("--xla_cpu_use_fusion_emitters=false")
os.environ.setdefault("XLA_FLAGS", " ".join(FLAGS))
# Compiled programs keep millions of objects alive, which the default thresholds walk over and over.
gc.set_threshold(200_000, 50, 100)
jax.config.update("jax_platforms", os.environ["JAX_PLATFORMS"])
jax.config.update("jax_debug_key_reuse", True)

settings.register_profile(
    "ci",
    deadline=None,  # the first example compiles
    derandomize=True,
    max_examples=15,
    # The float64 fixture is the same for every example.
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.filter_too_much,
    ],
)
settings.register_profile(
    "thorough", settings.get_profile("ci"), derandomize=False, max_examples=1000
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture
def float64() -> Iterator[None]:
    """Compute in double precision for the length of one test."""
    with jax.enable_x64(True):
        yield
