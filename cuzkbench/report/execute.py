"""The report's notebook run top to bottom in this process: no kernel to start, no kernel spec that must be installed.

Outputs are the same bundles that a Jupyter kernel would give, so that one template serves both.
"""

from __future__ import annotations

import ast
import copy
import json
from typing import Any

import plotly.graph_objects as go

PLOTLY = "application/vnd.plotly.v1+json"


def execute(notebook: dict[str, Any], **parameters: object) -> dict[str, Any]:
    """A copy of a notebook of ours with its outputs; parameters follow the cell that is tagged so, as papermill does.

    Whatever a cell raises is raised on.
    """
    done = copy.deepcopy(notebook)
    cells: list[dict[str, Any]] = []
    for cell in done["cells"]:
        cells.append(cell)
        if "parameters" in cell["metadata"].get("tags", ()):
            given = "\n".join(f"{name} = {value!r}" for name, value in parameters.items())
            tagged = {"tags": ["injected-parameters"]}
            cells.append({"cell_type": "code", "id": "injected", "metadata": tagged, "source": given})
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(cells):
        cell["source"] = "".join(cell["source"])
        if cell["cell_type"] == "code":
            cell |= {"execution_count": None, "outputs": _outputs(cell["source"], number, namespace)}
    return done | {"cells": cells}


def _outputs(source: str, number: int, namespace: dict[str, Any]) -> list[dict[str, Any]]:
    shown: list[object] = []
    namespace["display"] = lambda *values: shown.extend(values)
    tree = ast.parse(source)
    last = tree.body[-1] if tree.body else None
    if isinstance(last, ast.Expr):
        tree.body.pop()
    exec(compile(tree, f"<cell {number}>", "exec"), namespace)
    if isinstance(last, ast.Expr):
        shown.append(eval(compile(ast.Expression(last.value), f"<cell {number}>", "eval"), namespace))
    bundles = [_bundle(value) for value in shown if value is not None]
    return [{"output_type": "display_data", "metadata": {}, "data": bundle} for bundle in bundles]


def _bundle(value: object) -> dict[str, Any]:
    if isinstance(value, go.Figure):
        return {PLOTLY: json.loads(value.to_json())}
    if hasattr(value, "_repr_html_"):
        return {"text/html": value._repr_html_()}
    return {"text/plain": repr(value)}
