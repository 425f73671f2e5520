"""The cpu target needs no dialect of its own: tt becomes upstream scf, vector, arith, math and llvm."""
