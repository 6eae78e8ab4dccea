"""Restrict rows to the id range of their parents, so that pages ordered by id start at matching rows."""

from typing import Any, TypeVar

from django.db.models import Max, Min, OuterRef, QuerySet, Subquery

Rows = TypeVar("Rows", bound=QuerySet[Any])

MANY = 500
"""Maximum parents listed by id, so that the planner knows the number of rows of each."""


def span(rows: Rows, parent: str, parents: QuerySet[Any], **alike: str) -> Rows:
    """Return the rows of these parents.

    `parent` is their foreign key column; an index must have it with the primary key.

    Without bounds, a database would scan from the newest row over all rows of other parents. `alike` are columns
    between the two in another index: the rows are between the bounds of rows with this value. The caller filters other
    rows.
    """
    # Written as ranges in the order of all columns: with an equality, the planner would search the ends of all rows.
    given: dict[str, Any] = {f"{parent}__gte": OuterRef("pk"), f"{parent}__lte": OuterRef("pk")}
    given |= {f"{column}__{end}": value for column, value in alike.items() for end in ("gte", "lte")}
    own = rows.model._default_manager.filter(**given).values("pk")
    for column in alike:
        own = own.exclude(**{column: ""})
    order = [parent, *alike, "pk"]
    ends = (
        parents.order_by()
        .annotate(
            oldest=Subquery(own.order_by(*order)[:1]),
            newest=Subquery(own.order_by(*(f"-{column}" for column in order))[:1]),
        )
        .aggregate(first=Min("oldest"), last=Max("newest"))
    )
    if ends["first"] is None:
        return rows.none()
    keys = list(parents.order_by().values_list("pk", flat=True)[: MANY + 1])
    named = keys if len(keys) <= MANY else parents.order_by().values("pk")
    return rows.filter(**{f"{parent}__in": named, "pk__gte": ends["first"], "pk__lte": ends["last"]})
