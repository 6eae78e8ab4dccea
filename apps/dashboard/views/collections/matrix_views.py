"""The model matrix: models or versions against datasets, splits or tags."""

import dataclasses
from urllib.parse import urlencode

from django.http import HttpResponse

from apps.accounts.permissions import Permission, allow
from apps.dashboard.charts.sparkline import Sparkline, draw_sparkline
from apps.dashboard.chrome.page_answers import answer
from apps.dashboard.chrome.page_request import PageRequest
from apps.dashboard.forms.fields import show_errors
from apps.dashboard.forms.matrix_forms import MatrixForm
from apps.dashboard.tables.csv_files import answer_csv
from apps.rollouts.metrics.model_matrix import Matrix, MatrixCell, MatrixRefused, MatrixRow, build_matrix

POINTS = 12
"""Collections in a trend."""


@allow(GET=Permission.READ)
def model_matrix(request: PageRequest) -> HttpResponse:
    """Show the matrix that the address describes."""
    form, matrix = _read(request)
    context = {
        "form": form,
        "matrix": matrix,
        "rows": show_rows(matrix) if matrix else [],
        "has_mean": bool(form["suite"].value()),
        "query": urlencode([(name, value) for name, value in request.GET.items() if value and name != "baseline"]),
        "figure": f"pass@{form['k'].value()}" if form["k"].value() else "mean reward",
    }
    return answer(request, "collections/matrix.html", context, part="matrix", status=200 if matrix else 400)


@allow(GET=Permission.READ)
def model_matrix_file(request: PageRequest) -> HttpResponse:
    """Download the matrix as CSV, one line for each cell."""
    form, matrix = _read(request)
    if matrix is None:
        return answer(request, "collections/matrix.html", {"form": form, "matrix": None}, part="matrix", status=400)
    header = (
        *("row", "column", "collection", "value", "tasks", "difference", "low", "high", "cost", "seconds"),
        *("value_low", "value_high"),
    )
    lines = [
        (
            row.name,
            column,
            cell.collection,
            cell.value,
            cell.tasks,
            *(cell.difference or (None,) * 3),
            row.cost,
            row.duration,
            cell.value_low,
            cell.value_high,
        )
        for row in matrix.rows
        for column, cell in zip(matrix.columns, row.cells, strict=True)
        if cell.collection
    ]
    return answer_csv("matrix.csv", header, lines)


def show_rows(matrix: Matrix) -> list[tuple[MatrixRow, list[tuple[str, MatrixCell]], Sparkline | None]]:
    """Return each row with its cells by column, and the trend of its first column."""
    return [
        (row, list(zip(matrix.columns, row.cells, strict=True)), draw_sparkline(row.trend[-POINTS:]))
        for row in matrix.rows
    ]


def _read(request: PageRequest) -> tuple[MatrixForm, Matrix | None]:
    form = MatrixForm(request.GET.dict())
    if form.is_valid():
        with show_errors(form):
            try:
                return form, build_matrix(form.spec)
            except MatrixRefused as refusal:
                if refusal.argument != "baseline":
                    raise
                # Another choice of rows has no such baseline.
                return form, build_matrix(dataclasses.replace(form.spec, baseline=""))
    return form, None
