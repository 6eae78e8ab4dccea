"""Between the first row of some parents and the last: a page in the order of ids begins where their rows are."""

from typing import Any, TypeVar

from django.db.models import Max, Min, OuterRef, QuerySet, Subquery

Rows = TypeVar("Rows", bound=QuerySet[Any])

MANY = 500
"""Parents that are named one by one: the database knows how many rows each of them has, and plans with it."""


def span(rows: Rows, parent: str, parents: QuerySet[Any], **alike: str) -> Rows:
    """The rows of these parents; `parent` is the column that names theirs, and an index has it with the primary key.

    Without the ends a database would walk from the newest row on over everything that others have made since. `alike`
    are columns between the two in another such index, of those rows that have something there: the rows are between
    the ends of those that have this. It is for the caller to leave the others out.
    """
    # Said as ranges, in the order of all columns: an equality would be a reason to look for the ends of all rows.
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
