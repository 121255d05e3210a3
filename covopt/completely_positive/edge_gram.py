"""Matrices and data sets from graphs: as many atoms, and as many neurons, as the graph has edges.

Let E (k, N) be the edge-vertex matrix of a graph with k edges: each row has a 1 at both ends of its edge. A = E^T E has
the degrees on its diagonal and a 1 for each edge; E is a factor with k atoms. If the graph has no triangle, no factor
has fewer: an atom is positive on the vertices of a clique only, here on a vertex or an edge, and each edge (A_ij > 0)
needs an atom. This holds for every graph without triangles: trees, several components, and vertices without edges too.
For a graph with triangles k is an upper end only.

Source: [JGHG22], Prop. 13 and 14, Rem. 23.
"""

from __future__ import annotations

import inspect
import os
import re
from pathlib import Path

import networkx as nx
import numpy as np
from jaxtyping import Float
from networkx.generators import small, social

from covopt.data.arrays import check_readable
from covopt.runtime.errors import DataError, counted

FIXED = {*small.__all__, *social.__all__}
"""Functions of networkx; most of them make one graph, without arguments."""
FAMILIES = (
    "complete complete_bipartite cycle path star wheel ladder circular_ladder grid_2d generalized_petersen".split()
)
"""Families of graphs that networkx makes from whole numbers, quickly for numbers up to 99."""
MAX_VERTICES = 2000


def gram_of_graph(G: nx.Graph | Path | str) -> Float[np.ndarray, "N N"]:
    """Return A = E^T E of a graph: the degrees on the diagonal, and 1 for each edge.

    A is completely positive. If the graph has no triangle, its cp-rank is the number of edges ([JGHG22], Prop. 13);
    otherwise it is at most that.

    Args:
        G: a graph, whose directions, weights and repeated edges do not count; or an edge list (two labels a line), a
            graph6 file (`.g6`), or a name such as `petersen`, `cycle_5` or `complete_bipartite_3_3`, which networkx
            makes. Rows are in the order of its vertices; in an edge list, of their first appearance.

    Returns:
        A (N, N), for N vertices.

    Raises:
        DataError: no such file or name, a damaged file, an edge from a vertex to itself, no edge, or more than 2000
            vertices.

    Example:
        >>> import covopt
        >>> answer = covopt.cp_rank(covopt.gram_of_graph("petersen"))
        >>> answer.lower, answer.upper  # it has 15 edges, and no triangle
        (15, 15)
    """
    if isinstance(G, str | Path):
        G = _read_graph(G)
    elif not isinstance(G, nx.Graph):
        raise DataError(f"The graph is of type {type(G).__name__}; give a networkx graph, a file, or a name.")
    if len(G) > MAX_VERTICES:
        raise DataError(f"The graph has {len(G)} vertices; give at most {MAX_VERTICES}.")
    loop = next(nx.nodes_with_selfloops(G), None)
    if loop is not None:
        raise DataError(f"The graph joins the vertex {loop} to itself; leave such edges out.")
    if not G.number_of_edges():
        raise DataError("The graph has no edges; give at least one.")
    adjacency = nx.to_numpy_array(nx.Graph(G), weight=None)
    return adjacency + np.diag(adjacency.sum(axis=0))


def data_of_graph(G: nx.Graph | Path | str) -> tuple[Float[np.ndarray, "N N"], Float[np.ndarray, "N N"]]:
    """Return data (X, Y) = (I, E^T E) that need as many neurons as a triangle-free graph has edges.

    Among the ReLU networks of two layers without bias that fit the data exactly (`covopt.solve` without lam), the
    smallest squared norm is R = 2 tr Y = 4k for k edges, and K_1 = Y at every network that attains it. The fewest
    neurons of such a network are the cp-rank of Y ([JGHG22], Prop. 14). A graph without triangles therefore needs k
    neurons, and the complete bipartite graph of N / 2 + N / 2 vertices needs N^2 / 4. W_1 = E, W_2 = E^T is such a
    network. With lam > 0 the optimal outputs are not Y, and nothing is claimed.

    Args:
        G: as in `gram_of_graph`.

    Returns:
        X (N, N) and Y (N, N), for N vertices.

    Raises:
        DataError: see `gram_of_graph`.

    Example:
        >>> import covopt
        >>> X, Y = covopt.data_of_graph("complete_bipartite_2_2")
        >>> result = covopt.solve(X, Y, bias=0.0, time_limit=5)
        >>> round(result.cost, 2), result.widths  # 4k, and k
        (16.0, [4])
    """
    Y = gram_of_graph(G)
    return np.eye(len(Y)), Y


def _read_graph(source: Path | str) -> nx.Graph:
    """Return the graph of a file, or else of a name."""
    path = Path(source)
    if not os.path.exists(path):
        graph = _named_graph(str(source))
        if graph is None:
            raise DataError(
                f"There is no file and no graph {source}; give an edge list, a .g6 file, or a name of networkx, such as"
                " petersen or complete_bipartite_3_3 (numbers up to 99)."
            )
        return graph
    check_readable(path)
    return _read_graph6(path) if path.suffix.lower() == ".g6" else _read_edges(path)


def _named_graph(name: str) -> nx.Graph | None:
    """Return a graph by its name in networkx, with or without `_graph`, and its numbers; None if there is none."""
    parts = re.fullmatch(r"([a-z]\w*?)(?:_graph)?((?:_\d{1,2})*)", name, re.ASCII)
    if parts is None:
        return None
    family, numbers = f"{parts[1]}_graph", [int(number) for number in parts[2].split("_")[1:]]
    if family not in FIXED and parts[1] not in FAMILIES:
        return None
    maker = getattr(nx, family)
    parameters = inspect.signature(maker).parameters.values()
    needed = [p for p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    if len(numbers) != len(needed):
        return None
    try:
        return maker(*numbers)
    except nx.NetworkXError:  # such as generalized_petersen_2_1
        return None


def _read_graph6(path: Path) -> nx.Graph:
    try:
        return nx.from_graph6_bytes(path.read_bytes().strip())
    except (nx.NetworkXError, ValueError, IndexError) as error:
        raise DataError(f"{path} is not one graph of the format graph6; write it by networkx.write_graph6.") from error


def _read_edges(path: Path) -> nx.Graph:
    """Read two labels a line, apart by blanks or a comma; what follows a # is a comment."""
    graph = nx.Graph()
    try:
        lines = path.read_text("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not text in UTF-8; give one edge a line, as two labels.") from error
    for i, line in enumerate(lines, 1):
        labels = line.partition("#")[0].replace(",", " ").split()
        if labels and len(labels) != 2:
            raise DataError(f"Line {i} of {path} has {counted(len(labels), 'label')}; give two, the ends of an edge.")
        graph.add_edges_from([labels] if labels else [])
    return graph
