"""Record the answers of the API anew: python -m tests.api.recorded"""

import os
import sys

import pytest

if __name__ == "__main__":
    os.environ["RECORD"] = "1"
    sys.exit(pytest.main(["-q", "--show-capture=no", "tests/api/test_recorded.py"]))
