"""NVIDIA's dialect. Importing it tells the shared passes what its ops do to shared memory."""

from tilewright.targets.nvidia.dialect import effects  # noqa: F401
