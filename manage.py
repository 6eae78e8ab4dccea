#!/usr/bin/env python
"""Django's command line for GymWeb."""

import gc
import os
import sys

from gymweb.environment_variables import SettingRefused


def main() -> None:
    # Imports create many objects that stay, and searching them for garbage would take an eighth of the CPU time of a
    # start. The threshold stays in use; workers set their own (apps/rollouts/engine/garbage.py).
    gc.set_threshold(50_000, 10, 10)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gymweb.settings")
    from django.core.management import execute_from_command_line

    try:
        execute_from_command_line(sys.argv)
    except SettingRefused as refused:
        sys.exit(f"GymWeb does not start: {refused}")


if __name__ == "__main__":
    main()
