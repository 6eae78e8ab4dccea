import pytest


@pytest.fixture(autouse=True)
def uploads_dir(settings, tmp_path):
    settings.UPLOADS_DIR = tmp_path / "uploads"
    return settings.UPLOADS_DIR
