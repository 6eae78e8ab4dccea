from django.db import migrations


def drop(apps, schema_editor):
    """Of versions that are being loaded into one dataset at the same time the newest stays: the next migration allows
    one. Nobody has seen the others, and their files can be uploaded again."""
    versions = apps.get_model("tasks", "DatasetVersion").objects.filter(state="loading")
    uploads = apps.get_model("tasks", "Upload").objects.filter(state="loading")
    kept = set()
    for version in versions.order_by("-number"):
        if version.dataset_id not in kept:
            kept.add(version.dataset_id)
            continue
        uploads.filter(version=version).update(
            state="failed", version=None, message="Another file was being loaded too. Upload the file again."
        )
        version.delete()


class Migration(migrations.Migration):

    dependencies = [
        ('tasks', '0004_pages_of_tasks'),
    ]

    operations = [
        migrations.RunPython(drop, migrations.RunPython.noop),
    ]
