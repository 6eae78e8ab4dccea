"""`manage.py migrate`: Django's command, which compares models without texts and choices."""

from django.core.management.commands import migrate

from gymweb.schema_changes import SchemaAutodetector


class Command(migrate.Command):
    autodetector = SchemaAutodetector
