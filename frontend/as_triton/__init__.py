"""A folder that ``install_as_triton`` puts on ``sys.path``, for processes that get this one's path: ``import triton`` in them is Tilewright."""
