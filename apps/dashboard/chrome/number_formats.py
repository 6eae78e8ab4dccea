"""Numbers, durations and sizes as text."""

import math
from decimal import Decimal

_LEAST_USD = 1e-6
_LEAST_END = 1e-12
"""Smaller ends of intervals are 0 with a rounding error."""


def duration(seconds: float | str | None) -> str:
    """Format as `<1 ms`, `0.4 ms`, `850 ms`, `4.2 s`, `3 min 05 s`, `2 h 10 min`, `7 d`; a dash for None."""
    if seconds is None or seconds == "":
        return "–"
    seconds = float(seconds)
    if seconds < 0.999_5:
        return _milliseconds(seconds * 1000)
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02d} min"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def _milliseconds(count: float) -> str:
    # The event loop's clock has a resolution of milliseconds, so 0 means less than one.
    if count < 0.05:
        return "<1 ms"
    return f"{count:.1f} ms" if count < 0.95 else f"{count:.0f} ms"


def number(value: float | str | None, digits: int = 2) -> str:
    """Format with thousands separators, `digits` decimals unless whole; a dash for None."""
    if value is None or value == "":
        return "–"
    value = float(value)
    if not math.isfinite(value):
        return str(value)
    return f"{value:,.0f}" if value.is_integer() else f"{value:,.{digits}f}"


def fixed(value: float | None, digits: int = 3) -> str:
    """Format with a fixed number of decimals, for columns; a dash for None. `z` turns a negative zero into 0."""
    return "–" if value is None else f"{float(value):z,.{digits}f}".replace("-", "−")


def interval_end(value: float, digits: int = 3) -> str:
    """Format an end of an interval. Add a digit if the end would round to 0, so that its sign stays visible."""
    return fixed(value, digits + 1 if _LEAST_END < abs(value) < 0.5 * 10**-digits else digits)


def delta(value: float | None, digits: int = 3) -> str:
    """Format a difference with arrow and sign: `▲ +0.050`, `▼ −0.120`, `= 0`; a dash for None."""
    if value is None:
        return "–"
    if abs(value) < 0.5 * 10**-digits:
        return "= 0"
    return f"▲ +{value:,.{digits}f}" if value > 0 else f"▼ −{-value:,.{digits}f}"


def signed(value: float) -> str:
    """Format a difference of counts with its sign: `+12`, `−3`, `0`."""
    return f"{'−' if value < 0 else '+' if value > 0 else ''}{abs(value):,.0f}"


def usd(amount: float | None) -> str:
    """Format as `$12.50`; below a cent with significant digits; a dash for None."""
    if amount is None:
        return "–"
    if amount == 0 or amount >= 0.01:
        return f"${amount:,.2f}"
    # Two significant digits without an exponent.
    return f"${Decimal(f'{amount:.2g}'):f}" if amount >= _LEAST_USD else f"under ${_LEAST_USD:f}"


def in_unit(amount: float, unit: str) -> str:
    """Format an amount by its `unit`: `duration`, `usd` or `number`."""
    return {"duration": duration, "usd": usd}.get(unit, number)(amount)


def size(count: float | str | None) -> str:
    """Format bytes in powers of 1024, with at most three digits before the point: `999 B`, `1.0 KB`, `1.0 MB`."""
    if count is None or count == "":
        return "–"
    amount = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if round(amount, 1) < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TB"


def percent(part: float | None, whole: float | None = 1) -> str:
    """Format `part` of `whole` as `42 %`; a dash if `whole` is empty."""
    if part is None or not whole:
        return "–"
    return f"{100 * float(part) / float(whole):.0f} %"


def count_words(number: int, one: str, several: str) -> str:
    """Format as `1 flag is` or `1,200 flags are`, with `one` or `several` after the number."""
    return f"1 {one}" if number == 1 else f"{number:,} {several}"
