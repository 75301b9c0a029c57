"""What the benchmarks share: the plain descent, networks to match, and how results are kept."""
