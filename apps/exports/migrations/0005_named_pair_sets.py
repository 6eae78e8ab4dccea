"""Pair sets of before there were names and rules get both: the rule was best against worst by rewards."""

from collections import Counter

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.models import F, OuterRef, Subquery

CHUNK = 500


def name_pair_sets(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    alias = schema_editor.connection.alias
    pair_sets = apps.get_model("exports", "PairSet")._default_manager.using(alias)
    versions: Counter[int] = Counter()
    for pair_set in pair_sets.filter(name="").order_by("id").iterator(chunk_size=CHUNK):
        versions[pair_set.collection_id] += 1
        pair_sets.filter(pk=pair_set.pk).update(
            name=f"collection {pair_set.collection_id}",
            version=versions[pair_set.collection_id],
            rule={
                "mode": "best_worst",
                "level": "trajectory",
                "margin": pair_set.margin,
                "min_chosen_reward": pair_set.min_chosen_reward,
                "same": "completions",
                "include_redacted": True,
            },
            sources={"reward": pair_set.pair_count} if pair_set.pair_count else {},
            finished_at=F("created_at"),
        )
    pairs = apps.get_model("exports", "PreferencePair")._default_manager.using(alias)
    rollouts = apps.get_model("rollouts", "Rollout")._default_manager.using(alias)
    pairs.update(
        chosen_reward=Subquery(rollouts.filter(pk=OuterRef("chosen_id")).values("reward")[:1]),
        rejected_reward=Subquery(rollouts.filter(pk=OuterRef("rejected_id")).values("reward")[:1]),
    )


class Migration(migrations.Migration):
    dependencies = [("exports", "0004_pair_rules")]

    operations = [migrations.RunPython(name_pair_sets, migrations.RunPython.noop)]
