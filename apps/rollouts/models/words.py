"""The words of finished rollouts, apart from their traces, so that a text is found in a million of them."""

from typing import Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper

from apps.rollouts.models.rollouts import Rollout


class DocumentField(models.TextField):  # type: ignore[type-arg]
    """Words with their places: a tsvector in PostgreSQL; in SQLite the words themselves, in their order, of which a
    table of FTS5 beside it keeps the index (migration 0017). apps/rollouts/search/word_index.py writes both."""

    def db_type(self, connection: BaseDatabaseWrapper) -> str | None:
        return "tsvector" if connection.vendor == "postgresql" else super().db_type(connection)


@DocumentField.register_lookup
class Finds(models.Lookup):
    """`document__finds`: takes what the database's own search takes; see search/filters/text_search.py."""

    lookup_name = "finds"
    prepare_rhs = False

    def as_postgresql(self, compiler: Any, connection: Any) -> tuple[str, list[Any]]:
        left, parameters = self.process_lhs(compiler, connection)
        return f"{left} @@ %s::tsquery", [*parameters, self.rhs]

    def as_sqlite(self, compiler: Any, connection: Any) -> tuple[str, list[Any]]:
        table = compiler.quote_name_unless_alias(self.lhs.alias)
        match = "SELECT rowid FROM rollouts_rolloutwords_fts WHERE rollouts_rolloutwords_fts MATCH %s"
        return f'{table}."id" IN ({match})', [self.rhs]


class RolloutWords(models.Model):
    """Some of the words of one attempt; a long one has several parts, which overlap."""

    rollout = models.ForeignKey(Rollout, on_delete=models.CASCADE, related_name="words", db_index=False)
    part = models.PositiveSmallIntegerField(default=0)
    attempt = models.PositiveSmallIntegerField()
    document = DocumentField()
    is_cut = models.BooleanField(default=False, help_text="There was more than is kept; the last part says so")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["rollout", "part"], name="words_once_a_part")]

    def __str__(self) -> str:
        return f"words of rollout {self.rollout_id}, part {self.part}"


class UnindexedRollout(models.Model):
    """A rollout that ended and whose words no search finds yet. Written with its end, deleted with its words."""

    rollout = models.OneToOneField(Rollout, primary_key=True, on_delete=models.CASCADE, related_name="+")
    attempt = models.PositiveSmallIntegerField()
    taken_at = models.DateTimeField(null=True, help_text="When a worker began with it")
    tries = models.PositiveSmallIntegerField(default=0)

    class Meta:
        indexes = [models.Index(fields=["tries", "taken_at"], name="unindexed_next")]

    def __str__(self) -> str:
        return f"rollout {self.pk}, not indexed"
