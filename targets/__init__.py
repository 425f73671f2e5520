"""The Target protocol, the registry of targets, and the targets that Tilewright ships."""
