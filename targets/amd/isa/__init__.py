"""AMD's instruction sets, executed: an instruction-level simulator on numpy. ``targets.amd.simulate`` is its public face.

It knows gfx90a, gfx942, gfx950 (waves of 64), gfx1030, gfx11 and gfx12 (waves of 32) as far as compilers emit them, and shares nothing with the
lowering, so that a mistake in one of them shows. What it does not know is an UnknownInstruction when the code is decoded.

program       text of LLVM → Program: kernels with descriptor, arguments, instructions; constant data
registry      mnemonic → maker of a step; DecodeContext. ``instructions`` imports the modules that register
state         Batch (registers of all waves) and Waves (those that step together, what a step works on); readers and writers of operands
launch        kernarg segment, first registers
machine       decodes a kernel into blocks, runs batches of work-groups: scheduler, barriers
salu, salu_float, smem, control                         scalar instructions, scalar loads, program flow
valu_*, modifiers                                       vector instructions; DPP, SDWA, op_sel, clamp …
memory, global_ops, buffer_ops, flat_ops, scratch_ops, lds_ops, atomics, transfers, bank_conflicts      memory
matrix, matrix_wmma, matrix_formats                     MFMA and WMMA
waits, races                                            scoreboard of loads in flight; LDS races

A maker decides everything that the text decides; its step only does numpy. All waves of a work-group, and of as many work-groups as fit in a
batch, execute a step at once while they stand at one pc: arrays are (waves, lanes), register files (registers, waves, lanes).
``Waves`` offers a step: n, lanes, exec, exec_mask, full, vcc, scc, m0 (settable), vgpr(k), set_vgpr(k, value, mask), vgpr64, agpr, vectors, sgpr,
sgpr64, … (values read may be views: do not change them), mask_to_sgpr, sgpr_to_mask, wave_ids, group_ids (indices into the machine's state), machine, ins.
Register accessors ask ``waits`` whether a load is still in flight. A new instruction: a function with @instruction in the module of its kind, its
docstring naming the manual's section, and a test with ``run_snippet`` (tests/targets/amd/isa/snippets.py).
"""
