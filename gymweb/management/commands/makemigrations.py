"""`manage.py makemigrations`: Django's command, which leaves texts and choices out of migrations."""

from django.core.management.commands import makemigrations

from gymweb.schema_changes import SchemaAutodetector


class Command(makemigrations.Command):
    autodetector = SchemaAutodetector
