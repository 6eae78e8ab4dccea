"""`manage.py serve` that drains until a file exists, in place of a worker that has rollouts to finish."""

import asyncio
import os
import sys
from pathlib import Path

import django
from django.core.management import execute_from_command_line

django.setup()

from gymweb.management.commands import serve  # noqa: E402 - it imports models, which need the line above


class Draining(serve.Command):
    async def _drain(self) -> None:
        print("draining", flush=True)
        while not await asyncio.to_thread(Path(os.environ["SERVED_DRAIN_UNTIL"]).exists):
            await asyncio.sleep(0.02)


if __name__ == "__main__":
    serve.Command = Draining
    execute_from_command_line(sys.argv)
