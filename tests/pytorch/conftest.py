import importlib.util

# The rest of the tests must run where PyTorch is not installed.
collect_ignore_glob: list[str] = []
if importlib.util.find_spec("torch") is None:
    collect_ignore_glob.append("*.py")
else:
    import torch

    # Several workers share the cores, and the modules are small.
    torch.set_num_threads(1)
