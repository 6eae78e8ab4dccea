"""The full-text index: words of finished rollouts, stored apart from the traces."""

from typing import Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper

from apps.rollouts.models.rollouts import Rollout


class DocumentField(models.TextField):  # type: ignore[type-arg]
    """The words of a text with their positions, indexed by the database.

    In PostgreSQL a tsvector; in SQLite the words in order, separated by spaces, indexed by an FTS5 table (see the
    migration). apps/rollouts/search/word_index.py writes both.
    """

    def db_type(self, connection: BaseDatabaseWrapper) -> str | None:
        return "tsvector" if connection.vendor == "postgresql" else super().db_type(connection)


@DocumentField.register_lookup
class Finds(models.Lookup):
    """`document__finds`: match a phrase, that is, its words next to each other in this order."""

    lookup_name = "finds"
    prepare_rhs = False
    postgresql = "phraseto_tsquery('simple', %s)"
    sqlite = '"{}"'

    def as_postgresql(self, compiler: Any, connection: Any) -> tuple[str, list[Any]]:
        left, parameters = self.process_lhs(compiler, connection)
        return f"{left} @@ {self.postgresql}", [*parameters, self.rhs]

    def as_sqlite(self, compiler: Any, connection: Any) -> tuple[str, list[Any]]:
        table = compiler.quote_name_unless_alias(self.lhs.alias)
        match = "SELECT rowid FROM rollouts_rolloutwords_fts WHERE rollouts_rolloutwords_fts MATCH %s"
        return f'{table}."id" IN ({match})', [self.sqlite.format(self.rhs)]


@DocumentField.register_lookup
class FindsStart(Finds):
    """`document__finds_start`: match a phrase whose last word is a prefix."""

    lookup_name = "finds_start"
    postgresql = "(phraseto_tsquery('simple', %s)::text || ':*')::tsquery"
    sqlite = '"{}"*'


class RolloutWords(models.Model):
    """Words of one attempt; long texts have several overlapping parts."""

    rollout = models.ForeignKey(Rollout, on_delete=models.CASCADE, related_name="words", db_index=False)
    part = models.PositiveSmallIntegerField(default=0)
    attempt = models.PositiveSmallIntegerField()
    document = DocumentField()
    is_cut = models.BooleanField(default=False, help_text="The text was truncated")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["rollout", "part"], name="words_once_a_part")]

    def __str__(self) -> str:
        return f"words of rollout {self.rollout_id}, part {self.part}"


class UnindexedRollout(models.Model):
    """Queues a finished rollout for indexing. Inserted when the rollout ends, deleted when it is indexed."""

    rollout = models.OneToOneField(Rollout, primary_key=True, on_delete=models.CASCADE, related_name="+")
    attempt = models.PositiveSmallIntegerField()
    taken_at = models.DateTimeField(null=True, help_text="When a worker began with it")
    tries = models.PositiveSmallIntegerField(default=0)

    class Meta:
        indexes = [models.Index(fields=["tries", "taken_at"], name="unindexed_next")]

    def __str__(self) -> str:
        return f"rollout {self.pk}, not indexed"
