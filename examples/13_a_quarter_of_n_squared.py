"""
A data set that needs N^2 / 4 neurons
=====================================

Join each of N / 2 points to each of N / 2 others. This graph has N^2 / 4 edges and no triangle. With X = I and
Y = E^T E, where E has a row for each edge, an optimal network of two layers needs a neuron for each edge.
"""

import matplotlib.pyplot as plt
import numpy as np

import covopt

# %%
# The smallest number of neurons is the cp-rank of Y (proved); the rank of Y, N - 1, says nothing about it.

sizes = range(4, 15, 2)
neurons = []
for N in sizes:
    X, Y = covopt.data_of_graph(f"complete_bipartite_{N // 2}_{N // 2}")
    answer = covopt.cp_rank(Y)
    assert answer.lower == answer.upper
    neurons.append(answer.upper)
    print(f"{N:2} samples, rank {np.linalg.matrix_rank(Y):2}: {neurons[-1]:2} neurons")

# %%
# Four samples: three neurons fit them too, at a higher cost than the optimum N^2 = 16.

X, Y = covopt.data_of_graph("complete_bipartite_2_2")
curve = covopt.plateau(X, Y, bias=0.0, widths=[3, 4, 5], starts=1, time_limit=60)
for width, cost in curve.curve:
    print(f"{width} neurons: {cost:.4f}")
print(f"neurons of an optimal network: {curve.exact.lower.width} to {curve.exact.upper.width}")

# %%
# The number of neurons grows with the square of the number of samples.

figure, axes = plt.subplots(figsize=(5, 3.2), layout="constrained")
axes.plot(sizes, neurons, "o", label="neurons of an optimal network")
line = np.linspace(4, 14)
axes.plot(line, line**2 / 4, "--", color="grey", label="N^2 / 4")
axes.plot(line, line, ":", color="grey", label="N")
axes.set(xlabel="N samples", ylabel="neurons")
axes.legend()
plt.show()
