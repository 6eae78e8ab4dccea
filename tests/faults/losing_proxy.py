#!/usr/bin/env python
"""Stands between a worker and PostgreSQL and cuts connections after a COMMIT has reached the server, before its answer
has come back: the worker cannot know whether what it wrote was stored.

It begins to cut at SIGUSR1, and prints at its end how many it cut.
"""

import argparse
import asyncio
import signal

COMMIT = b"COMMIT"


class Proxy:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.cut = 0
        self.cutting = False
        self.commits = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answers, requests = await asyncio.open_connection("127.0.0.1", self.options.to)
        except OSError:
            writer.transport.abort()
            return
        back = asyncio.create_task(self._copy_back(answers, writer))
        try:
            while data := await reader.read(65_536):
                if self.cutting and COMMIT in data and self._is_next():
                    # The answer is awaited, so that the server has surely done it, and then never given.
                    back.cancel()
                    await asyncio.wait([back])
                    requests.write(data)
                    await requests.drain()
                    await answers.read(65_536)
                    self.cut += 1
                    return
                requests.write(data)
                await requests.drain()
        except OSError:
            pass
        finally:
            back.cancel()
            requests.close()
            writer.transport.abort()

    def _is_next(self) -> bool:
        self.commits += 1
        return self.commits % self.options.every == 1

    async def _copy_back(self, answers: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await answers.read(65_536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        writer.close()


async def work(options: argparse.Namespace) -> None:
    proxy = Proxy(options)
    leaving = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, leaving.set)
    loop.add_signal_handler(signal.SIGUSR1, setattr, proxy, "cutting", True)
    async with await asyncio.start_server(proxy.serve, "127.0.0.1", options.port):
        await leaving.wait()
        print(f"cut {proxy.cut}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--to", type=int, required=True, help="the port of PostgreSQL")
    parser.add_argument(
        "--every", type=int, required=True, help="of so many COMMITs the first is its connection's last"
    )
    asyncio.run(work(parser.parse_args()))


if __name__ == "__main__":
    main()
