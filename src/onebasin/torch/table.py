"""The one table of operations: by the name of a PyTorch operator, a function of JAX arrays."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

Rule = Callable[..., Any]
TABLE: dict[str, Rule] = {}
FAMILIES: dict[str, str] = {}
USERS = "registered"


class Family:
    """Operations of one kind: what decorates a rule, or takes many at once.

    Args:
        name: What the table in the documentation calls them.
    """

    def __init__(self, name: str):
        self.name = name

    def __call__(self, *names: str) -> Callable[[Rule], Rule]:
        def enter(rule: Rule) -> Rule:
            self.rows(dict.fromkeys(names, rule))
            return rule

        return enter

    def rows(self, rules: Mapping[str, Rule], namespace: str = "aten") -> None:
        """Enters rules by the names of their operators, without the namespace."""
        for name, rule in rules.items():
            TABLE[f"{namespace}.{name}"] = rule
            FAMILIES[f"{namespace}.{name}"] = self.name


def register(*names: str) -> Callable[[Rule], Rule]:
    """Gives PyTorch operators a meaning in JAX, or a new one.

    The rule is called as the operator is, with JAX arrays in place of tensors and JAX types in
    place of torch's; devices, layouts and memory formats are left out. What it returns is brought
    to the type that PyTorch gives. Every conversion is checked against the module, with this rule
    as with the others.

    Args:
        *names: Operators as `torch.export` writes them: "aten.softsign" for all overloads,
            "aten.add.Tensor" for one, "mylib.swish" for one of your own (`torch.library`).

    Returns:
        A decorator.

    Raises:
        ValueError: If a name is not that of an operator.

    Example:
        >>> import jax.numpy as jnp
        >>> from onebasin.torch import register
        >>> @register("mylib.swish")
        ... def swish(x, beta=1.0):
        ...     return x / (1 + jnp.exp(-beta * x))
    """
    for name in names:
        if not isinstance(name, str) or not re.fullmatch(r"\w+\.\w+(\.\w+)?", name):
            raise ValueError(
                f"got the operator {name!r}, expected its namespace and name, as 'aten.softsign', "
                "and if need be its overload, as 'aten.add.Tensor'"
            )
    if not names:
        raise ValueError("got no operator, expected at least one name, as 'aten.softsign'")

    def enter(rule: Rule) -> Rule:
        if not callable(rule):
            raise ValueError(f"the rule is a {type(rule).__name__}, expected a function")
        for name in names:
            TABLE[name] = rule
            FAMILIES[name] = USERS
        return rule

    return enter


def rule_for(name: str) -> Rule | None:
    """The rule of an operator "namespace.name.overload": its own, or that of all overloads."""
    return TABLE.get(name) or TABLE.get(name.rpartition(".")[0])


def operations() -> dict[str, tuple[str, ...]]:
    """The operators that have a rule, by family, in the order of the alphabet.

    Example:
        >>> from onebasin.torch import operations
        >>> operations()["attention"]
        ('aten.scaled_dot_product_attention',)
    """
    found: dict[str, list[str]] = {}
    for name, family in sorted(FAMILIES.items()):
        found.setdefault(family, []).append(name)
    return {family: tuple(names) for family, names in sorted(found.items())}
