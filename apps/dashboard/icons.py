"""The line icons as SVG path data on a 16 × 16 grid, drawn with a stroke of 1.5."""

ICONS = {
    "home": "M2.5 7.5 8 3l5.5 4.5M4 6.5V13h8V6.5M6.5 13V9.5h3V13",
    "datasets": "M3 4c0-1 2.2-1.5 5-1.5S13 3 13 4s-2.2 1.5-5 1.5S3 5 3 4Zm0 0v8c0 1 2.2 1.5 5 1.5s5-.5 5-1.5V4"
    "M3 8c0 1 2.2 1.5 5 1.5S13 9 13 8",
    "environments": "M8 2.5 13 5v6l-5 2.5L3 11V5zM3 5l5 2.5L13 5M8 7.5v6",
    "models": "M5 4.5h6v7H5zM7 2.5v2M9 2.5v2M7 11.5v2M9 11.5v2M3 7h2M3 9h2M11 7h2M11 9h2",
    "agents": "M4 6h8v6.5H4zM8 3.5V6M6.5 9v.5M9.5 9v.5M2.5 8v2.5M13.5 8v2.5",
    "collections": "M5 3.5 12.5 8 5 12.5z",
    "pause": "M5.5 3.5v9M10.5 3.5v9",
    "rollouts": "M3 4h2M3 8h2M3 12h2M7.5 4H13M7.5 8H13M7.5 12H13",
    "pairs": "M3 3.5h4v9H3zM9 3.5h4v9H9z",
    "exports": "M8 2.5V10M5 7l3 3 3-3M3 10.5v3h10v-3",
    "workers": "M3 3.5h10v3.5H3zM3 9h10v3.5H3zM5 5.2v.1M5 10.7v.1",
    "people": "M8 7.5a2.3 2.3 0 1 0 0-4.6 2.3 2.3 0 0 0 0 4.6ZM3.5 13.5c.3-2.7 2-4 4.5-4s4.2 1.3 4.5 4",
    "docs": "M4 2.5h5.5L12 5v8.5H4zM9.5 2.5V5H12M6 8h4M6 10.5h4",
    "menu": "M2.5 4.5h11M2.5 8h11M2.5 11.5h11",
    "plus": "M8 3v10M3 8h10",
    "check": "M3 8.5 6.5 12 13 4.5",
    "refresh": "M13 8a5 5 0 1 1-1.5-3.6M13 2.5v3h-3",
    "upload": "M8 10.5V3M5 6l3-3 3 3M3 10.5v3h10v-3",
    "key": "M6 12.5a3 3 0 1 0 0-6 3 3 0 0 0 0 6ZM8.2 7.3 13 2.5M10.8 4.7l1.7 1.7",
    "light": "M8 10.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5ZM8 1.8v1.4M8 12.8v1.4M1.8 8h1.4M12.8 8h1.4"
    "M3.6 3.6l1 1M11.4 11.4l1 1M12.4 3.6l-1 1M4.6 11.4l-1 1",
    "dark": "M13 9.5A5.5 5.5 0 0 1 6.5 3a5.5 5.5 0 1 0 6.5 6.5Z",
    "system": "M2.5 3.5h11v7.5h-11zM6 13.5h4",
}
