"""Passes of the cpu target: ``lower_to_loops`` (tt to loops over vectors) lies in targets/cpu/lower_loops.py."""
