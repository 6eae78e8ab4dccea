"""Lines of JSON that every reader splits at the same places."""

# Line ends for `str.splitlines`. JSON allows them unescaped inside strings, and only there.
_LINE_ENDS = [(end.encode(), f"\\u{ord(end):04x}".encode()) for end in "\u2028\u2029\u0085"]


def escape_line_ends(lines: bytes) -> bytes:
    """Return lines of JSON with escapes for U+2028, U+2029 and U+0085, at which some readers would split a line."""
    if lines.isascii():
        return lines
    for character, escape in _LINE_ENDS:
        # Searching for one byte is far faster than for several.
        if character[:1] in lines and character[-1:] in lines:
            lines = lines.replace(character, escape)
    return lines
