"""Disk use in bytes: database, export files and free space."""

import shutil

from django.conf import settings
from django.db import connection
from django.db.models import Sum

from apps.accounts.disk_space import reserve_of
from apps.exports.models import Export

_DATABASE = {
    "sqlite": "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()",
    "postgresql": "SELECT pg_database_size(current_database())",
}


def read_disk() -> dict[str, int | bool]:
    """Return the bytes of the database, of export files, and used and free on the volume of GYMWEB_VAR.

    A database server may have another volume. `is_low` is True below twice the reserve at which uploads are rejected
    and jobs wait.
    """
    with connection.cursor() as cursor:
        cursor.execute(_DATABASE[connection.vendor])
        (database,) = cursor.fetchone()
    exported = Export.objects.filter(state=Export.State.READY).aggregate(total=Sum("bytes", default=0))["total"]
    volume = shutil.disk_usage(settings.VAR_DIR)
    is_low = volume.free < 2 * reserve_of(volume.used + volume.free)
    return {
        "database": database,
        "exports": exported,
        "used": volume.used,
        "free": volume.free,
        "is_low": is_low,
    }
