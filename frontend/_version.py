"""Versions: ``__version__`` is the API level of Triton that is followed (programs parse it), the other is Tilewright's own."""

__version__ = "3.6.0"
tilewright_version = "0.1.0"
