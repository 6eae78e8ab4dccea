"""The head server: other programs ask it for the configuration and the addresses of all servers, as in NeMo Gym."""

import time
from typing import Any
from urllib.parse import urlsplit

import yaml
from aiohttp import web

from gymweb.supervision.server_list import Server


async def start_head_server(tree: dict[str, Any], servers: list[Server], pids: dict[str, int]) -> web.AppRunner:
    """Serve at the address in the configuration. Raise OSError if its port is in use."""
    began = time.time()

    async def configuration(request: web.Request) -> web.Response:
        return web.json_response(yaml.safe_dump(tree))

    async def instances(request: web.Request) -> web.Response:
        return web.json_response([_describe(server, pids.get(server.name), began) for server in servers])

    async def health(request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    application = web.Application()
    application.router.add_get("/global_config_dict_yaml", configuration)
    application.router.add_get("/server_instances", instances)
    for path in ("/", "/health", "/healthz", "/livez", "/readyz"):
        application.router.add_get(path, health)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    at = tree["head_server"]
    try:
        await web.TCPSite(runner, at["host"], int(at["port"])).start()
    except OSError:
        await runner.cleanup()
        raise
    return runner


def _describe(server: Server, pid: int | None, began: float) -> dict[str, Any]:
    parts = urlsplit(server.url)
    return {
        "config_path": server.name,
        "process_name": server.name,
        "server_type": server.kind,
        "name": server.folder.name if server.folder else server.name,
        "dir_path": str(server.folder or ""),
        "entrypoint": server.entrypoint,
        "host": parts.hostname,
        "port": parts.port,
        "url": server.url,
        "pid": pid,
        "start_time": began,
    }
