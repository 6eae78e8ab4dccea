#!/usr/bin/env python
"""`manage.py serve` whose exports and uploads report their progress fifty times a second: short jobs write often."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
os.environ["DJANGO_SETTINGS_MODULE"] = "gymweb.settings"

EAGER_SECONDS = 0.02


def main() -> None:
    import django

    django.setup()
    from django.core.management import execute_from_command_line

    from apps.exports import export_jobs
    from apps.tasks import version_loading

    export_jobs.HEARTBEAT_SECONDS = version_loading.HEARTBEAT_SECONDS = EAGER_SECONDS
    execute_from_command_line(["manage.py", "serve", *sys.argv[1:]])


if __name__ == "__main__":
    main()
