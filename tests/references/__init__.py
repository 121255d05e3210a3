"""The papers' own constructions, for comparison: covopt computes with thin factors and has no need of them."""
