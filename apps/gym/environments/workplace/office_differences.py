"""Whether an office is as it should be: each record that there was, and those that were added whatever their ids."""

from collections import Counter
from typing import NamedTuple

from apps.gym.environments.workplace.office import TABLES, Office, Record
from apps.gym.traces.items import dump_json
from apps.gym.verifiers.text.exact_match import normalise

_SETS = frozenset({"to", "attendees"})
Changes = Counter[str]


class Comparison(NamedTuple):
    """Changes to the office as it was in the beginning."""

    wanted: int
    made: int
    unwanted: int

    @property
    def same(self) -> bool:
        return self.wanted == self.made and not self.unwanted


def compare(before: Office, expected: Office, given: Office) -> Comparison:
    wanted, found = _changes(before, expected), _changes(before, given)
    made = (wanted & found).total()
    return Comparison(wanted.total(), made, found.total() - made)


def _changes(before: Office, after: Office) -> Changes:
    changes: Changes = Counter()
    for table in TABLES:
        old, new = before.tables[table], after.tables[table]
        for id in old.keys() | new.keys():
            one, other = old.get(id), new.get(id)
            if one is other:
                continue
            if one is not None and other is not None and _key(one) != _key(other):
                changes[f"{table} {id} {_key(other)}"] += 1
            elif other is None:
                changes[f"{table} {id} deleted"] += 1
            elif one is None:
                changes[f"{table} new {_key({**other, 'id': ''})}"] += 1
    return changes


def _key(record: Record) -> str:
    """Texts as they read, and people in any order."""
    return dump_json(
        {
            name: sorted(value) if name in _SETS else normalise(value) if isinstance(value, str) else value
            for name, value in sorted(record.items())
        }
    )
