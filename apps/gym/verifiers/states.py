"""Abbreviations of the states of the US, both ways of writing the same answer."""

_NAMES = """
al alabama, ak alaska, az arizona, ar arkansas, ca california, co colorado, ct connecticut, de delaware, fl florida,
ga georgia, hi hawaii, id idaho, il illinois, in indiana, ia iowa, ks kansas, ky kentucky, la louisiana, me maine,
md maryland, ma massachusetts, mi michigan, mn minnesota, ms mississippi, mo missouri, mt montana, ne nebraska,
nv nevada, nh new hampshire, nj new jersey, nm new mexico, ny new york, nc north carolina, nd north dakota, oh ohio,
ok oklahoma, or oregon, pa pennsylvania, ri rhode island, sc south carolina, sd south dakota, tn tennessee, tx texas,
ut utah, vt vermont, va virginia, wa washington, wv west virginia, wi wisconsin, wy wyoming, dc district of columbia
"""
STATES = {entry.split()[0]: " ".join(entry.split()[1:]) for entry in _NAMES.split(",")}
"""The name of a state by its abbreviation, both in lower case."""
