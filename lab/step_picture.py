# SPDX-License-Identifier: Apache-2.0
"""A step's time before and after, as a picture for the README: what kernels a step consists of with
Inductor and with backend "coda" (bench/peers/train_step_torch.py --parts). lab/tables.py writes it.
"""

WIDTH, LEFT, RIGHT, BAR = 720, 150, 70, 26
COLOURS = {"products": "#1b6ca8", "attention": "#e0a030", "optimizer": "#2e8b57",
           "the rest": "#c0392b", "nothing": "#dddddd"}
NAMES = {"products": "products with their epilogues", "the rest": "all other kernels",
         "nothing": "no kernel"}


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}"{more}>{text}</text>'


def picture(groups: dict[str, dict[str, dict[str, float]]]) -> str:
    """Of {what is trained: {compiled by: {part: milliseconds}}}."""
    longest = max(sum(parts.values()) for bars in groups.values() for parts in bars.values())
    scale = (WIDTH - LEFT - RIGHT) / longest
    lines, x, y = [], 10.0, 20.0
    for part, colour in COLOURS.items():
        name = NAMES.get(part, part)
        lines += [f'<rect x="{x:.1f}" y="{y - 10:.1f}" width="12" height="12" fill="{colour}"/>',
                  _text(x + 17, y, name)]
        x += 36 + 6.3 * len(name)
    y += 16
    for group, bars in groups.items():
        y += 18
        lines.append(_text(10, y, group, ' font-weight="bold"'))
        y += 8
        for who, parts in bars.items():
            lines.append(_text(LEFT - 8, y + BAR / 2 + 4, who, ' text-anchor="end"'))
            x = float(LEFT)
            for part, colour in COLOURS.items():
                width = parts[part] * scale
                lines.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{BAR}" '
                             f'fill="{colour}"/>')
                if width > 28:
                    lines.append(_text(x + width / 2, y + BAR / 2 + 4, f"{parts[part]:.0f}",
                                       ' text-anchor="middle" fill="white"'))
                x += width
            lines.append(_text(x + 6, y + BAR / 2 + 4, f"{sum(parts.values()):.0f} ms"))
            y += BAR + 6
    height = y + 8
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height:.0f}" fill="white"/>', *lines, "</svg>", ""])
