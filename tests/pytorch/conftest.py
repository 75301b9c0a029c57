import importlib.util

# The rest of the tests must run where PyTorch is not installed.
collect_ignore_glob = [] if importlib.util.find_spec("torch") else ["*.py"]
