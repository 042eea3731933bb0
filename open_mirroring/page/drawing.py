"""Small pictures as SVG: numbers only, no text of a source."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

_HEIGHT, _STEP = 28, 5


def sparkline(values: Sequence[int], name: str) -> Markup:
    """Bars, one for each value, with the sum and the highest in words for those who do not see them."""
    highest = max(values, default=0)
    label = f"{name}: {sum(values):,} in {len(values)} hours, at most {highest:,} in one"
    bars = []
    for at, value in enumerate(values):
        height = max(2, round(_HEIGHT * value / highest)) if value else 1
        bars.append(f'<rect x="{at * _STEP}" y="{_HEIGHT - height}" width="{_STEP - 1}" height="{height}"/>')
    return Markup(
        '<svg class="spark" role="img" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
        "<title>{label}</title>{bars}</svg>"
    ).format(width=len(values) * _STEP, height=_HEIGHT, label=label, bars=Markup("".join(bars)))


_SHAPES = {
    "STOP": '<path d="M5 1h6l4 4v6l-4 4H5l-4-4V5z"/><path class="cut" d="M5 5l6 6M11 5l-6 6"/>',
    "LOSSES": '<path d="M8 1l7 13H1z"/><path class="cut" d="M8 6v4M8 11.6v.8"/>',
    "HOLD": '<rect x="1" y="1" width="14" height="14" rx="2"/><path class="cut" d="M6 5v6M10 5v6"/>',
    "PASS": '<circle cx="8" cy="8" r="7"/><path class="cut" d="M4.5 8.2l2.5 2.5 4.5-5"/>',
    "UNKNOWN": '<path d="M8 0.8L15.2 8 8 15.2 0.8 8z"/><path class="cut" d="M6.4 6.4a1.7 1.7 0 1 1 1.6 2v1M8 11v.6"/>',
}


def shape(verdict: str) -> Markup:
    """The shape of a verdict, for those who do not tell its colour; the word stands beside it."""
    return Markup('<svg class="shape" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">{}</svg>').format(
        Markup(_SHAPES[verdict])
    )
