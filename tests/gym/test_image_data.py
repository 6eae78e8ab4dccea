"""Images are recognised by their content, and measured by their headers."""

import pytest

from apps.gym import image_data
from apps.gym.image_data import ImageRefused, image_places, is_data_url, read_data_url, read_image
from tests.images import GIF, JPEG, WEBP_EXTENDED, WEBP_LOSSLESS, WEBP_LOSSY, make_png, png_url


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (make_png(300, 7), "image/png"),
        (JPEG, "image/jpeg"),
        (GIF, "image/gif"),
        (WEBP_LOSSY, "image/webp"),
        (WEBP_LOSSLESS, "image/webp"),
        (WEBP_EXTENDED, "image/webp"),
    ],
)
def test_type_and_size_come_from_the_content(content, kind):
    image = read_image(content)
    assert (image.kind, image.width, image.height) == (kind, 300, 7)
    assert read_data_url(image.data_url) == image


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "is not a PNG, JPEG, GIF or WebP image"),
        (b"", "is not a PNG, JPEG, GIF or WebP image"),
        (make_png()[:18], "is a damaged PNG image: it has no size"),
        (JPEG[:20], "is a damaged JPG image: it has no size"),
        (b"\xff\xd8\xff\xe0\x00\x00" + JPEG[4:], "is a damaged JPG image: it has no size"),
        (b"RIFF\x20\x00\x00\x00WEBPABCD\x14\x00\x00\x00", "is a damaged WEBP image: it has no size"),
        (make_png(0, 5), "is a damaged PNG image: it has no size"),
        (make_png()[:16] + b"\0\0\xff\xff\0\0\xff\xff", "has 65,535 × 65,535 pixels: the limit is 50,000,000 pixels"),
    ],
)
def test_other_files_are_refused(content, message):
    with pytest.raises(ImageRefused, match=f"^{message}$"):
        read_image(content)


def test_large_files_are_refused(monkeypatch):
    monkeypatch.setattr(image_data, "MAX_IMAGE_BYTES", 50)
    with pytest.raises(ImageRefused, match="has 67 bytes: the limit for an image is 50"):
        read_image(make_png().ljust(67, b"\0")[:67])


@pytest.mark.parametrize(
    "address",
    [
        "data:image/svg+xml;base64,PHN2Zy8+",
        "data:image/png;base64,iVBORw0KGgo",
        png_url().replace("image/png", "image/gif"),
        png_url() + " ",
        "https://example.org/a.png",
    ],
)
def test_other_addresses_are_refused(address):
    with pytest.raises(ImageRefused):
        read_data_url(address)


def test_a_text_with_an_image_is_no_image():
    assert is_data_url(png_url())
    assert not is_data_url("see " + png_url())


def test_places_are_columns_and_parts_of_messages_in_order():
    row = {
        "image": "a",
        "images": ["b", {"path": "not an address"}],
        "id": "c",
        "messages": [
            {"content": [{"type": "input_image", "image_url": "d"}, {"image_url": {"url": "e", "detail": "f"}}]}
        ],
        "other/one": {"image_url": "g", "image": "h"},
    }
    found = [(place.pointer, place.address) for place in image_places(row)]
    assert found == [
        ("/image", "a"),
        ("/images/0", "b"),
        ("/messages/0/content/0/image_url", "d"),
        ("/messages/0/content/1/image_url/url", "e"),
        ("/other~1one/image_url", "g"),
    ]
