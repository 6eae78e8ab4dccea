"""Numbers that the `datasets` library loads unchanged in JSON columns.

Its JSON columns go through pandas' ultrajson, which writes ten decimals and reads by adding up whole part and fraction.
So 0.3 becomes 0.30000000000000004 and 1e-12 becomes 0.0, also in the arguments of calls that a model is to learn.
"""

from typing import Any

_DECIMALS = 10
_POWERS = [float(f"1e-{places}") for places in range(_DECIMALS + 1)]


def is_loaded_exactly(number: float) -> bool:
    """Return True if a JSON column returns the float unchanged, from JSON lines and Parquet. False if in doubt."""
    whole, _, rest = repr(number).removeprefix("-").partition(".")
    if not (whole.isdecimal() and rest.isdecimal()) or len(rest) > _DECIMALS or str(number) == "-0.0":
        return False
    return float(whole) + float(rest) * _POWERS[len(rest)] == abs(number)


def holds_only_exact(value: Any) -> bool:
    """Return True if every float in a JSON value is loaded exactly."""
    if isinstance(value, float):
        return is_loaded_exactly(value)
    if isinstance(value, dict):
        return all(holds_only_exact(inner) for inner in value.values())
    return not isinstance(value, list) or all(holds_only_exact(inner) for inner in value)
