"""What goes wrong, in words."""


class SymmetryError(ValueError):
    """A group that does not hold, or that is asked to act on another model's parameters."""


class UnknownPrimitiveWarning(UserWarning):
    """A primitive without a rule: its axes were pinned, so symmetries may have been missed."""
