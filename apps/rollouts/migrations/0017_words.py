from django.db import migrations, models
import django.db.models.deletion

import apps.rollouts.models.words

_FTS = [
    # The words are kept in the table of the model; this one has the index of them alone.
    """CREATE VIRTUAL TABLE rollouts_rolloutwords_fts USING fts5(
        document, content='rollouts_rolloutwords', content_rowid='id', tokenize='unicode61')""",
    """CREATE TRIGGER rollouts_rolloutwords_added AFTER INSERT ON rollouts_rolloutwords BEGIN
        INSERT INTO rollouts_rolloutwords_fts(rowid, document) VALUES (new.id, new.document); END""",
    """CREATE TRIGGER rollouts_rolloutwords_gone AFTER DELETE ON rollouts_rolloutwords BEGIN
        INSERT INTO rollouts_rolloutwords_fts(rollouts_rolloutwords_fts, rowid, document)
        VALUES ('delete', old.id, old.document); END""",
    """CREATE TRIGGER rollouts_rolloutwords_changed AFTER UPDATE OF id, document ON rollouts_rolloutwords BEGIN
        INSERT INTO rollouts_rolloutwords_fts(rollouts_rolloutwords_fts, rowid, document)
        VALUES ('delete', old.id, old.document);
        INSERT INTO rollouts_rolloutwords_fts(rowid, document) VALUES (new.id, new.document); END""",
]
_GIN = ["CREATE INDEX rollouts_rolloutwords_document ON rollouts_rolloutwords USING gin (document)"]
_WAITING = """INSERT INTO rollouts_unindexedrollout (rollout_id, attempt, tries)
    SELECT id, attempt, 0 FROM rollouts_rollout WHERE finished_at IS NOT NULL AND attempt > 0"""


def add_search(apps, schema_editor):
    for statement in _GIN if schema_editor.connection.vendor == "postgresql" else _FTS:
        schema_editor.execute(statement)


def remove_search(apps, schema_editor):
    # PostgreSQL's index goes with its table, and so do the triggers.
    if schema_editor.connection.vendor == "sqlite":
        schema_editor.execute("DROP TABLE rollouts_rolloutwords_fts")


class Migration(migrations.Migration):
    dependencies = [("rollouts", "0016_deletion_of_rollouts")]

    operations = [
        migrations.CreateModel(
            name="RolloutWords",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("part", models.PositiveSmallIntegerField(default=0)),
                ("attempt", models.PositiveSmallIntegerField()),
                ("document", apps.rollouts.models.words.DocumentField()),
                ("is_cut", models.BooleanField(default=False, help_text="There was more than is kept; the last part says so")),
                ("rollout", models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name="words", to="rollouts.rollout")),
            ],
            options={"constraints": [models.UniqueConstraint(fields=("rollout", "part"), name="words_once_a_part")]},
        ),
        migrations.CreateModel(
            name="UnindexedRollout",
            fields=[
                ("rollout", models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name="+", serialize=False, to="rollouts.rollout")),
                ("attempt", models.PositiveSmallIntegerField()),
                ("taken_at", models.DateTimeField(help_text="When a worker began with it", null=True)),
                ("tries", models.PositiveSmallIntegerField(default=0)),
            ],
            options={"indexes": [models.Index(fields=["tries", "taken_at"], name="unindexed_next")]},
        ),
        migrations.RunPython(add_search, remove_search),
        migrations.RunSQL(_WAITING, migrations.RunSQL.noop),
    ]
