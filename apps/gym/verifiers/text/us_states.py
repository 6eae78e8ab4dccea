"""The states of the US and their abbreviations, both ways of writing the same answer."""

_NAMES = """
dc district of columbia, nh new hampshire, nj new jersey, nm new mexico, ny new york, nc north carolina,
nd north dakota, ri rhode island, sc south carolina, sd south dakota, wv west virginia, al alabama,
ak alaska, az arizona, ar arkansas,
ca california, co colorado, ct connecticut, de delaware, fl florida, ga georgia, hi hawaii, id idaho, il illinois,
in indiana, ia iowa, ks kansas, ky kentucky, la louisiana, me maine, md maryland, ma massachusetts, mi michigan,
mn minnesota, ms mississippi, mo missouri, mt montana, ne nebraska, nv nevada, oh ohio, ok oklahoma, or oregon,
pa pennsylvania, tn tennessee, tx texas, ut utah, vt vermont, va virginia, wa washington, wi wisconsin, wy wyoming
"""
# Those of two words first: West Virginia holds Virginia.
_ABBREVIATIONS = [entry.split(maxsplit=1) for entry in _NAMES.split(",")]


def abbreviate_states(text: str) -> str:
    """A text in lower case with the abbreviation, in upper case, for each name in it."""
    for abbreviation, name in _ABBREVIATIONS:
        text = text.replace(name.strip(), abbreviation.upper())
    return text
