"""A policy model over the Responses wire that plays a solver's moves: it finds the row by what it is asked."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from apps.gym.traces.items import input_items, text_of


@asynccontextmanager
async def playing(rows: list[dict[str, Any]], moves: Any, *, observations: int = 0) -> AsyncIterator[str]:
    """Its base URL. `observations` stand after the row's own prompt before the first reply."""
    prompts = [[text_of(item) for item in input_items(row)] for row in rows]

    async def answer(request: web.Request) -> web.Response:
        body = await request.json()
        items = body["input"]
        texts = [text_of(item) for item in items]
        number = next(n for n, prompt in enumerate(prompts) if texts[: len(prompt)] == prompt)
        given = len(prompts[number]) + observations
        reply = {
            "id": "resp_1",
            "created_at": 1.0,
            "model": "solver",
            "object": "response",
            "status": "completed",
            "output": moves(rows[number], items[given:], items[:given]),
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": {"input_tokens": 7, "output_tokens": 5, "total_tokens": 12},
        }
        return web.json_response(reply)

    app = web.Application(client_max_size=16 * 1024**2)
    app.router.add_post("/v1/responses", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()
