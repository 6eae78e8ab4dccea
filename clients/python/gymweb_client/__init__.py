"""Python client of GymWeb: `GymWeb` for scripts and notebooks, `AsyncGymWeb` for asyncio."""

from gymweb_client.asynchronous import AsyncGymWeb as AsyncGymWeb
from gymweb_client.asynchronous import RolloutStream as RolloutStream
from gymweb_client.attempts import Attempt as Attempt
from gymweb_client.errors import ApiError as ApiError
from gymweb_client.errors import GymWebError as GymWebError
from gymweb_client.synchronous import GymWeb as GymWeb
