"""Geometry of figures as SVG attributes, since the content policy forbids inline styles. Numbers in, shapes out."""
