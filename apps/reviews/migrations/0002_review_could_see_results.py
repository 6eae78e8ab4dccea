"""Mark the reviews whose reviewers could see results when they submitted, or may have seen them since they began."""

from datetime import timedelta
from typing import Any

from django.db import migrations, models
from django.db.models import Q
from django.utils import timezone

# Before this migration, results were hidden from an annotator until a day after the lease of an item had expired.
_HIDDEN_FOR = timedelta(hours=24)


def mark_reviews(apps: Any, schema_editor: Any) -> None:
    reviews = apps.get_model("reviews", "Review").objects.using(schema_editor.connection.alias)
    by_engineers = Q(status__in=["submitted", "replaced"], reviewer__role__in=["engineer", "admin"])
    left_lying = Q(status__in=["open", "lapsed"], leased_until__lt=timezone.now() - _HIDDEN_FOR)
    marked = reviews.filter(by_engineers | left_lying)
    # By id: SQLite and PostgreSQL allow no join in an UPDATE.
    reviews.filter(pk__in=marked.values("pk")).update(could_see_results=True)


class Migration(migrations.Migration):
    dependencies = [("accounts", "0001_initial"), ("reviews", "0001_initial")]

    operations = [
        migrations.AddField(
            model_name="review",
            name="could_see_results",
            field=models.BooleanField(
                default=False,
                help_text="The role of the reviewer shows rewards, models and other reviews",
            ),
        ),
        migrations.RunPython(mark_reviews, migrations.RunPython.noop),
    ]
