"""What the serving tests ask for: routes that say what arrived, a download, a socket that echoes."""

import asyncio
import hashlib
import os
from pathlib import Path

from channels.generic.websocket import AsyncWebsocketConsumer
from channels.routing import ProtocolTypeRouter, URLRouter
from django.core.asgi import get_asgi_application
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.urls import path

from apps.exports.downloading import stream_file

django_application = get_asgi_application()


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


class Echo(AsyncWebsocketConsumer):
    async def receive(self, text_data=None, bytes_data=None):
        await self.send(text_data=text_data)


urlpatterns = [
    path("uploads/", upload),
    path("other/", upload),
    path("form/", form),
    path("download/", download),
    path("slow/", slow),
]
application = ProtocolTypeRouter(
    {"http": django_application, "websocket": URLRouter([path("ws/", Echo.as_asgi())])},
)
