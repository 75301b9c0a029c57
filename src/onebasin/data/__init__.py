"""Data sets: embedded, in files that are already there, or downloaded and checked."""

from onebasin.data.dataset import Dataset, Normalisation
from onebasin.data.errors import DataError
from onebasin.data.loading import load
from onebasin.data.source import File, Form, Raw, Source

__all__ = ["DataError", "Dataset", "File", "Form", "Normalisation", "Raw", "Source", "load"]
