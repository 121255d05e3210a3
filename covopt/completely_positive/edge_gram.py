"""Matrices and data sets from graphs: as many atoms, and as many neurons, as a triangle-free graph has edges.

Source: [JGHG22], Prop. 13 and 14, Rem. 23.
"""

from __future__ import annotations

import contextlib
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

FAMILIES = (
    "complete complete_bipartite cycle path star wheel ladder circular_ladder grid_2d generalized_petersen".split()
)
"""Graphs that networkx makes from whole numbers, quickly for numbers up to 99."""


def gram_of_graph(G: nx.Graph | Path | str) -> Float[np.ndarray, "N N"]:
    """Return A = E^T E of a graph: the degrees on the diagonal, and 1 for each edge.

    >>> answer = covopt.cp_rank(covopt.gram_of_graph("petersen"))
    >>> answer.lower, answer.upper  # it has 15 edges, and no triangle
    (15, 15)

    E (k, N) has a row for each edge, with 1 at both ends, and is a factor with k atoms. If the graph has no triangle
    (it may be a tree, or in several parts), none has fewer, and the cp-rank is k ([JGHG22], Prop. 13): an atom is
    positive on a clique only, a vertex or an edge, and each edge needs one. With triangles the cp-rank is at most k.

    Args:
        G: a graph, whose directions, weights and repeated edges do not count; or an edge list (two labels a line), a
            graph6 file (`.g6`), or a name such as `petersen`, `cycle_5` or `complete_bipartite_3_3`, which networkx
            makes. Rows are in the order of its vertices; in an edge list, of their first appearance.

    Returns:
        A (N, N), for N vertices.

    Raises:
        DataError: no such file or name, a damaged file, an edge from a vertex to itself, no edge, or more than 2000
            vertices.
    """
    if not isinstance(G, nx.Graph | str | Path):
        raise DataError(f"The graph is of type {type(G).__name__}; give a networkx graph, a file, or a name.")
    graph, most = G if isinstance(G, nx.Graph) else _read_graph(Path(G)), 2000
    if len(graph) > most:
        raise DataError(f"The graph has {len(graph)} vertices; give at most {most}.")
    loop = next(nx.nodes_with_selfloops(graph), None)
    if loop is not None:
        raise DataError(f"The graph joins the vertex {loop} to itself; leave such edges out.")
    if not graph.number_of_edges():
        raise DataError("The graph has no edges; give at least one.")
    adjacency = nx.to_numpy_array(nx.Graph(graph), weight=None)  # type: ignore[arg-type]
    return adjacency + np.diag(adjacency.sum(axis=0))


def data_of_graph(G: nx.Graph | Path | str) -> tuple[Float[np.ndarray, "N N"], Float[np.ndarray, "N N"]]:
    """Return data (X, Y) = (I, E^T E) that need as many neurons as a triangle-free graph has edges.

    >>> X, Y = covopt.data_of_graph("complete_bipartite_2_2")
    >>> result = covopt.solve(X, Y, bias=0.0, time_limit=5)
    >>> round(result.cost, 2), result.widths  # 4k, and k
    (16.0, [4])

    Among the ReLU networks of two layers without bias that fit the data exactly (`covopt.solve` without lam), the
    smallest squared norm is R = 2 tr Y = 4k for k edges, and K_1 = Y at every network that attains it. The fewest
    neurons of such a network are the cp-rank of Y ([JGHG22], Prop. 14): k for a graph without triangles, N^2 / 4 for
    the complete bipartite one of N / 2 + N / 2 vertices. With lam > 0 the outputs differ from Y; nothing is claimed.

    Args:
        G: as in `gram_of_graph`.

    Returns:
        X (N, N) and Y (N, N), for N vertices.

    Raises:
        DataError: see `gram_of_graph`.
    """
    Y = gram_of_graph(G)
    return np.eye(len(Y)), Y


def _read_graph(path: Path) -> nx.Graph:
    """Return the graph of a file, or else of a name."""
    if os.path.exists(path):
        check_readable(path)
        return _read_file(path)
    parts = re.fullmatch(r"([a-z]\w*?)(?:_graph)?((?:_\d{1,2})*)", str(path), re.ASCII)
    family, numbers = (f"{parts[1]}_graph", parts[2].split("_")[1:]) if parts else ("", [])
    listed = family in (*small.__all__, *social.__all__, *(f"{name}_graph" for name in FAMILIES))
    if listed and hasattr(nx, family):  # older versions of networkx lack a few
        maker = getattr(nx, family)
        parameters = inspect.signature(maker).parameters.values()
        needed = [p for p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
        if len(numbers) == len(needed):
            with contextlib.suppress(nx.NetworkXError):  # such as generalized_petersen_2_1
                return maker(*map(int, numbers))
    raise DataError(
        f"There is no file and no graph {path}; give an edge list, a .g6 file, or a name of networkx, such as petersen"
        " or complete_bipartite_3_3 (numbers up to 99)."
    )


def _read_file(path: Path) -> nx.Graph:
    """Read graph6, or else two labels a line, apart by blanks or a comma; what follows a # is a comment."""
    try:
        if path.suffix.lower() == ".g6":
            return nx.from_graph6_bytes(path.read_bytes().strip())
        lines = path.read_text("utf-8-sig").splitlines()
    except (nx.NetworkXError, ValueError, IndexError) as error:
        raise DataError(f"{path} is not one graph6 graph, nor text in UTF-8; give one edge a line.") from error
    graph = nx.Graph()
    for i, line in enumerate(lines, 1):
        labels = line.partition("#")[0].replace(",", " ").split()
        if len(labels) not in (0, 2):
            raise DataError(f"Line {i} of {path} has {counted(len(labels), 'label')}; give two, the ends of an edge.")
        graph.add_edges_from([(labels[0], labels[1])] if labels else [])
    return graph
