"""NVIDIA's dialect. Importing it tells the shared passes what its ops do."""

from tilewright.targets.nvidia.dialect import effects, memory_effects  # noqa: F401
