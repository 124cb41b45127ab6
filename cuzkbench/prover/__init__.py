"""The prover: a plan's partitions from their constraints to verified proofs, every phase recorded."""
