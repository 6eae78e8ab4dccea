"""Record the exchanges of GymWeb with NeMo Gym's servers again: `python -m tests.nemo_gym.real.record_exchanges`.

`make test-nemo` installs the servers. The recordings are replayed by tests/nemo_gym/test_recorded_exchanges.py.
"""

import asyncio
import json

from tests.nemo_gym.exchanges import PLAYS, RECORDINGS, record
from tests.nemo_gym.real.installed import running


def main() -> None:
    RECORDINGS.mkdir(exist_ok=True)
    for name in PLAYS:
        with running(name) as url:
            found = asyncio.run(record(name, url))
        (RECORDINGS / f"{name}.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
        print(name, found["rewards"])


if __name__ == "__main__":
    main()
