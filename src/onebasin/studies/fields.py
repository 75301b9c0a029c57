"""YAML that somebody else may have written: plain values of bounded size, or one clause of why not.

A few hundred bytes of YAML can stand for gigabytes, where parts repeat others by reference: such
references are refused, as are depths and sizes that no configuration has.
"""

from __future__ import annotations

from typing import Any

import yaml

from onebasin._core.text import shortened

LARGEST = 2**16
DEEPEST = 20


class FieldsError(ValueError):
    """A text is no YAML for a configuration; the message is a clause."""


def parse_yaml(text: str) -> Any:
    """What a YAML text says.

    Raises:
        FieldsError: If it is no YAML, or more than a configuration may hold.
    """
    if len(text) > LARGEST:
        raise FieldsError(f"it has {len(text):,} characters, expected at most {LARGEST:,}")
    try:
        _check_events(text)
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise FieldsError(shortened(" ".join(str(error).split()), 300)) from error
    except FieldsError:
        raise
    # Tags and dates are handed to Python's own types, whatever is in them.
    except (ValueError, TypeError, LookupError, ArithmeticError) as error:
        raise FieldsError(
            f"it has a value that is none of its kind ({shortened(error)})"
        ) from error


def _check_events(text: str) -> None:
    """Refuses references and depth before anything is made of them."""
    depth = 0
    for event in yaml.parse(text, yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            raise FieldsError(
                f"line {event.start_mark.line + 1} refers to another part (*{event.anchor:.40}): "
                "write that part out"
            )
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise FieldsError(f"it is nested more than {DEEPEST} deep")
