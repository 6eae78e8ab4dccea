"""Geometry of charts as SVG attributes; the content security policy forbids inline styles. Numbers in, shapes out."""
