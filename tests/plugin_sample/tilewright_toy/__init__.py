"""A whole third-party target: a chip whose programs are one thread each, here played by the host's own processor."""
