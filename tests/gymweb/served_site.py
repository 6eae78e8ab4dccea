"""What the serving tests ask for: routes that say what arrived, a download, a socket that echoes."""

import asyncio
import hashlib
import os
import time
from pathlib import Path

from asgiref.sync import async_to_sync, sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from channels.routing import ProtocolTypeRouter, URLRouter
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse, StreamingHttpResponse
from django.urls import path

from apps.exports.ranged_downloads import stream_file
from gymweb.asgi import SpooledBodyHandler


def _fingerprint(stream) -> dict[str, object]:
    digest, size = hashlib.sha256(), 0
    while chunk := stream.read(65536):
        digest.update(chunk)
        size += len(chunk)
    return {"size": size, "sha256": digest.hexdigest()}


def upload(request: HttpRequest) -> HttpResponse:
    stream = request.FILES["file"] if request.content_type == "multipart/form-data" else request
    return JsonResponse(_fingerprint(stream))


def form(request: HttpRequest) -> HttpResponse:
    return JsonResponse(dict(request.POST.items()))


def download(request: HttpRequest) -> HttpResponseBase:
    return stream_file(request, Path(os.environ["SERVED_FILE"]), filename="big.bin")


async def slow(request: HttpRequest) -> HttpResponse:
    await asyncio.sleep(float(request.GET["seconds"]))
    return HttpResponse("done")


left = []


async def leaving(request: HttpRequest) -> HttpResponse:
    """Leave a thread that needs the event loop later, as a request does whose client has left."""

    def work() -> None:
        time.sleep(2)
        async_to_sync(asyncio.sleep)(0)

    left.append(asyncio.ensure_future(sync_to_async(work, thread_sensitive=False)()))
    return HttpResponse("done")


def breaking(request: HttpRequest) -> StreamingHttpResponse:
    async def pieces():
        yield b"begun"
        raise TypeError("This cannot be told.")

    return StreamingHttpResponse(pieces())


class Echo(AsyncWebsocketConsumer):
    async def receive(self, text_data=None, bytes_data=None):
        await self.send(text_data=text_data)


async def http(scope, receive, send) -> None:
    """Under /copied/ a middleware hides the server's short cut, so that Django receives the body in pieces."""

    async def plain_receive():
        return await receive()

    await django_application(scope, plain_receive if scope["path"].startswith("/copied/") else receive, send)


django_application = SpooledBodyHandler()
urlpatterns = [
    path("uploads/", upload, name="uploads"),
    path("copied/uploads/", upload, name="copied-uploads"),
    path("other/", upload),
    path("other/uploads/", upload),
    path("form/", form),
    path("download/", download),
    path("slow/", slow),
    path("leaving/", leaving),
    path("breaking/", breaking),
]
application = ProtocolTypeRouter(
    {"http": http, "websocket": URLRouter([path("ws/", Echo.as_asgi())])},
)
