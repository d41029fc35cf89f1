"""
Proofs about the state machine: exhaustive exploration of small windows, and theorems for all windows by an SMT solver.

`machine` encodes one transition so that it computes on Python numbers and on terms of the solver z3. `reach` explores all
reachable states of each preset with the library's own transition, and compares the encoding with it. `theorems` states what
holds for every rule, and `mutants` has wrong transitions that show that each theorem can fail.
"""
