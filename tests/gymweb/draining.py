"""`manage.py serve` with a drain of a given length, in place of a worker that has rollouts to finish."""

import asyncio
import os
import sys

from django.core.management import execute_from_command_line

from gymweb.management.commands import serve


class Draining(serve.Command):
    async def _drain(self) -> None:
        await asyncio.sleep(float(os.environ["SERVED_DRAIN_SECONDS"]))


if __name__ == "__main__":
    serve.Command = Draining
    execute_from_command_line(sys.argv)
