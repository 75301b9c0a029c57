"""What can go wrong between PyTorch and JAX."""


class ConversionError(ValueError):
    """A module, its state or its inputs cannot be converted; the message says what to do."""
