import pytest

from tests.tracking.site_of_trackers import PYTHON


@pytest.fixture(autouse=True)
def _tracking(settings, tmp_path):
    settings.TRACKING_DIR = tmp_path / "tracking"
    settings.TRACKING_PYTHON = str(PYTHON)
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]
    settings.PUBLIC_URL = "https://gym.example.org"
