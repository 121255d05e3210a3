"""
Is this matrix completely positive?
===================================

A is completely positive if A = B^T B with a non-negative B; the fewest rows of B are its cp-rank. For the data X = I
this is a question about networks: the fewest neurons of an optimal network are the cp-rank of (Y Y^T)^(1/2).
"""

import matplotlib.pyplot as plt
import numpy as np

import covopt

# %%
# The edges of the complete bipartite graph on 3 + 3 vertices: nine atoms, although the rank is only five. The theorem
# behind it: a connected support graph without triangles needs one atom for each edge.

A = covopt.gram_of_graph("complete_bipartite_3_3")
answer = covopt.cp_rank(A)
print(f"{answer.verdict}, exact: {answer.exact}")
print(f"rank {np.linalg.matrix_rank(A)}, cp-rank {answer.lower} to {answer.upper}")
print(answer.lower_reason)

# %%
# The same number is the width of the network that attains the representation cost of X = I, Y = A, which is N^2 = 36.
# Narrower networks fit too, at a higher cost: one of N = 6 neurons, with W_1 a multiple of I, costs N^2 + N = 42, and
# better ones lie between. A width at which the search finds no exact fit in time is left out below.

widths = covopt.plateau(np.eye(6), A, bias=0.0, widths=[6, 7, 8, 9], starts=2, time_limit=12)
print(f"R = {widths.level:.6f}; the lowest cost for each width:")
print("   ".join(f"{width}: {cost:.4f}" for width, cost in widths.curve))
print(f"neurons of an optimal network: {widths.exact.lower.width} to {widths.exact.upper.width}")

# %%
# A matrix that is non-negative and positive semi-definite need not be completely positive. Then there is a witness: a
# copositive matrix C, x^T C x >= 0 for all x >= 0, with <A, C> < 0.

pentagon = np.array([[1, 1, 0, 0, 1], [1, 2, 1, 0, 0], [0, 1, 2, 1, 0], [0, 0, 1, 1, 1], [1, 0, 0, 1, 6]], dtype=float)
answer = covopt.cp_rank(pentagon)
print(f"smallest eigenvalue {np.linalg.eigvalsh(pentagon)[0]:.2g}; {answer.verdict}")
print(f"C is copositive: {answer.witness.proof}; the answer checks: {answer.check(pentagon)}")

# %%
# The atoms of the first matrix, and the witness against the second.

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
left.imshow(covopt.cp_rank(A).B, cmap="Greys")
left.set(title="B: nine atoms", xlabel="vertex", ylabel="atom")
C = answer.witness.C
shown = right.imshow(C, cmap="RdBu", vmin=-abs(C).max(), vmax=abs(C).max())
right.set_title("C: copositive, <A, C> < 0")
figure.colorbar(shown, ax=right)
plt.show()
