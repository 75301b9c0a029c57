"""Models that a user names on the command line as `MODULE:FACTORY`."""

import contextlib
import difflib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

EXPECTED = (
    "(apply_fn, params, inputs), or (net, inputs) where net is a PyTorch module, a pair (init, "
    "apply) of functions, or has .init(key, inputs) and .apply(params, inputs)"
)

# Modules of users that were imported for a factory, with what was in their files.
_READ: dict[str, tuple[Path, bytes]] = {}


class FactoryError(Exception):
    """The model that a user named could not be built; the message is one sentence for them."""


class Model(NamedTuple):
    """What a factory returns, in its long form."""

    apply_fn: Callable[[Any, Any], Any]
    params: Any
    inputs: Any


class TorchModel(Model):
    """A converted PyTorch module, with the module itself."""

    module: Any


def load_model(name: str, seed: int = 0) -> Model:
    """Import a user's factory, call it, and bring what it returns into one form.

    Args:
        name: `module:factory` or `path/to/file.py:factory`; the current directory is importable.
        seed: for the parameters, where the factory returns a net to be initialised.

    Returns:
        The model, with parameters.

    Raises:
        FactoryError: if any step fails.
    """
    if not _is_named(name):
        raise FactoryError(
            f"got the model name {name!r}, expected MODULE:FACTORY: "
            "write for example my_models:factory or path/to/file.py:factory."
        )
    with called(name, "factory", EXPECTED) as returned:
        return _as_model(returned, name, seed)


def load_returned(name: str, what: str, expected: str) -> Any:
    """Import a user's function and call it.

    Args:
        name: `module:function` or `path/to/file.py:function`.
        what: What the function is called in messages.
        expected: What it is to return, for messages.

    Returns:
        What it returned.

    Raises:
        FactoryError: if any step fails.
    """
    if not _is_named(name):
        raise FactoryError(
            f"got the name {name!r}, expected MODULE:{what.upper()}: "
            f"write for example my_data:{what} or path/to/file.py:{what}."
        )
    with called(name, what, expected) as returned:
        return returned


@contextlib.contextmanager
def called(name: str, what: str, expected: str) -> Iterator[Any]:
    """What a user's function returned, while the modules beside it can be imported."""
    module_name, _, attribute = name.rpartition(":")
    path = _as_path(module_name)
    folders = [Path.cwd(), *([path.resolve().parent] if path else [])]
    with _importable(*folders), _up_to_date(folders):
        module = _import_file(path) if path else _import_module(module_name)
        yield _call(_find(module, attribute, module_name, what, expected), name)


def _is_named(name: str) -> bool:
    module_name, colon, attribute = name.rpartition(":")
    return bool(colon and module_name and attribute)


def describe(thing: Any) -> str:
    """Say what a thing is: 'None', 'a str', 'a tuple of 2 (int, str)'."""
    if thing is None:
        return "None"
    kind = type(thing).__name__
    if isinstance(thing, tuple | list):
        inside = ", ".join(type(item).__name__ for item in thing[:4])
        more = ", ..." if len(thing) > 4 else ""
        return f"a {kind} of {len(thing)} ({inside}{more})"
    return f"{'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind}"


def one_line(error: BaseException, limit: int = 200) -> str:
    """Describe an exception by its type and the first line of its message."""
    lines = str(error).strip().splitlines()
    if not lines:
        return type(error).__name__
    first = lines[0] if len(lines[0]) <= limit else lines[0][: limit - 3] + "..."
    return f"{type(error).__name__}: {first}"


def _as_path(module_name: str) -> Path | None:
    looks_like_path = module_name.endswith(".py") or "/" in module_name or "\\" in module_name
    return Path(module_name).expanduser() if looks_like_path else None


@contextlib.contextmanager
def _importable(*folders: Path) -> Iterator[None]:
    before = list(sys.path)
    sys.path[:0] = [str(folder) for folder in reversed(folders)]
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path[:] = before


@contextlib.contextmanager
def _up_to_date(folders: list[Path]) -> Iterator[None]:
    """Imports the modules in some folders anew where one of them has changed since it was read."""
    if any(_content(file) != content for file, content in _READ.values()):
        for name in _READ:
            sys.modules.pop(name, None)
        _READ.clear()
        importlib.invalidate_caches()
    before = set(sys.modules)
    try:
        yield
    finally:
        for name in set(sys.modules) - before:
            file = Path(getattr(sys.modules[name], "__file__", None) or "")
            if file.suffix == ".py" and any(_is_in(file, folder) for folder in folders):
                _READ[name] = file, _content(file)


def _is_in(file: Path, folder: Path) -> bool:
    return file.is_relative_to(folder) and "site-packages" not in file.parts


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise FactoryError(
            f"got the file {str(path)!r}, and there is none at {path.resolve()}: check the path."
        )
    # A name of its own: a user's random.py must not stand in for a module of the same name.
    module_name = f"onebasin_user_{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise FactoryError(f"got the file {str(path)!r}, expected Python source: name a .py file.")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses, and so Flax modules, look their module up by name while it is being executed.
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[module_name]
        raise FactoryError(
            f"importing {path} failed with {one_line(error)}: "
            f"run `python {path}` to see where, and mend it there."
        ) from error
    return module


def _import_module(module_name: str) -> ModuleType:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module_name != missing and not module_name.startswith(missing + "."):
            raise FactoryError(
                f"importing {module_name} failed because it needs {missing!r}, "
                "which is not installed: install it in this environment."
            ) from error
        raise FactoryError(
            f"got the module {module_name!r}, and there is none in {Path.cwd()} "
            "nor among the installed packages: check the name, "
            "or give the file as path/to/file.py:factory."
        ) from error
    except (Exception, SystemExit) as error:
        raise FactoryError(
            f"importing {module_name} failed with {one_line(error)}: "
            f"run `python -c 'import {module_name}'` to see where, and mend it there."
        ) from error


def _find(
    module: ModuleType, attribute: str, module_name: str, what: str, expected: str
) -> Callable[[], Any]:
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise FactoryError(
                f"got the {what} {attribute!r}, and {module_name} has no such name: "
                f"{_suggestion(found, part)}."
            )
        found = getattr(found, part)
    if not callable(found):
        raise FactoryError(
            f"{module_name}:{attribute} is {describe(found)}, expected a function without "
            f"arguments: write a function that returns {expected}."
        )
    return found


def _suggestion(owner: Any, missing: str) -> str:
    own = [
        name
        for name, value in vars(owner).items()
        if callable(value)
        and not name.startswith("_")
        and getattr(value, "__module__", None) == getattr(owner, "__name__", None)
    ]
    close = difflib.get_close_matches(missing, own, n=1)
    if close:
        return f"the nearest is {close[0]!r}"
    if own:
        return f"name one of its functions, which are {', '.join(sorted(own)[:8])}"
    return f"define a function {missing}() in it"


def _call(factory: Callable[[], Any], name: str) -> Any:
    try:
        inspect.signature(factory).bind()
    except TypeError as error:
        raise FactoryError(
            f"{name} cannot be called without arguments ({error}): "
            "give each argument a default, or wrap it in a function that has none."
        ) from error
    except ValueError:
        pass  # a callable written in C has no signature to look at
    try:
        return factory()
    except (Exception, SystemExit) as error:
        raise FactoryError(
            f"{name} raised {one_line(error)}: call it in Python to see where, and mend it there."
        ) from error


def _as_model(returned: Any, name: str, seed: int) -> Model:
    if isinstance(returned, tuple) and len(returned) in (2, 3):
        from onebasin.nets.net import net_of

        returned = (net_of(returned[0]), *returned[1:])
    match returned:
        case (module, inputs) if is_torch(module):
            return _converted(module, inputs, name)
        # A Flax module is callable too, but only through its apply.
        case (net, params, inputs) if _is_net(net):
            return Model(net.apply, params, inputs)
        case (apply_fn, params, inputs) if callable(apply_fn):
            return Model(apply_fn, params, inputs)
        case (net, inputs) if _is_net(net):
            return Model(net.apply, _initialise(net, inputs, name, seed), inputs)
    raise FactoryError(
        f"{name} returned {describe(returned)}, expected {EXPECTED}: change its return statement."
    )


def is_torch(candidate: Any) -> bool:
    """Whether it is a PyTorch module, without importing PyTorch."""
    return any(
        kind.__name__ == "Module" and kind.__module__ == "torch.nn.modules.module"
        for kind in type(candidate).__mro__
    )


def converted(module: Any, inputs: Any, name: str) -> tuple[Any, Any]:
    """A PyTorch module that a factory returned, as a network and its parameters."""
    from onebasin.torch import ConversionError, from_torch

    try:
        return from_torch(module, inputs)
    except ConversionError as error:
        raise FactoryError(f"{name} returned a PyTorch module, and {error}.") from error


def _converted(module: Any, inputs: Any, name: str) -> Model:
    import jax

    from onebasin.torch.modules import as_tree
    from onebasin.torch.tensors import to_numpy

    inputs = as_tree(inputs)
    net, params = converted(module, inputs, name)
    arrays = jax.tree.map(lambda x: to_numpy(x) if hasattr(x, "detach") else x, inputs)
    model = TorchModel(net.apply, params, arrays)
    model.module = module
    return model


def _is_net(candidate: Any) -> bool:
    return callable(getattr(candidate, "init", None)) and callable(
        getattr(candidate, "apply", None)
    )


def _initialise(net: Any, inputs: Any, name: str, seed: int) -> Any:
    import jax
    import jax.numpy as jnp

    def filled(leaf: Any) -> Any:
        if isinstance(leaf, jax.ShapeDtypeStruct):
            return jnp.zeros(leaf.shape, leaf.dtype)
        return leaf

    try:
        given = jax.random.key(seed), jax.tree.map(filled, inputs)
        try:
            # One by one, the operations of a large network's init take many times as long.
            return jax.jit(lambda key, inputs: net.init(key, inputs))(*given)
        except Exception:
            return net.init(*given)
    except Exception as error:
        raise FactoryError(
            f"{name} returned a net whose .init(key, inputs) raised {one_line(error)}: "
            "check that the inputs have the shape that the net expects."
        ) from error
