#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the training losses of several runs; each point is the mean of 20 steps.

    scripts/loss_curves.py --out docs/results/fp8_loss.svg bf16=RUN/step-001000/run_state.json ...

Reads "train_losses" from run_state.json files of checkpoints.
"""
import argparse
import json

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 720, 360, 50, 40, 16
COLOURS = ("#1b6ca8", "#c0392b", "#2e8b57", "#8e44ad")
MEAN = 20  # steps a point


def points_of(path):
    """[(step, loss)], means of MEAN steps."""
    losses = json.load(open(path))["train_losses"]
    groups = [losses[i : i + MEAN] for i in range(0, len(losses) - MEAN + 1, MEAN)]
    return [(g[-1][0], sum(loss for _, loss in g) / len(g)) for g in groups]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", metavar="NAME=FILE")
    parser.add_argument("--out", required=True)
    arguments = parser.parse_args()
    runs = dict(run.split("=", 1) for run in arguments.runs)
    curves = {name: points_of(path) for name, path in runs.items()}
    last = max(points[-1][0] for points in curves.values())
    high = max(loss for points in curves.values() for _, loss in points)
    x = lambda step: LEFT + (WIDTH - LEFT - 10) * step / last
    y = lambda loss: TOP + (HEIGHT - TOP - BOTTOM) * (1 - loss / high)
    text = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for loss in range(0, int(high) + 1):
        text.append(f'<path d="M{LEFT} {y(loss):.1f}H{WIDTH - 10}" stroke="#ddd"/>')
        text.append(f'<text x="{LEFT - 8}" y="{y(loss) + 4:.1f}" text-anchor="end">{loss}</text>')
    for step in range(0, last + 1, max(1, last // 5)):
        text.append(
            f'<text x="{x(step):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{step}</text>'
        )
    text.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 4}" text-anchor="middle">step</text>')
    for i, (name, points) in enumerate(curves.items()):
        colour = COLOURS[i % len(COLOURS)]
        path = "L".join(f"{x(step):.1f} {y(loss):.1f}" for step, loss in points)
        text.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        label = f'x="{WIDTH - 90}" y="{TOP + 16 * (i + 1)}" fill="{colour}"'
        text.append(f"<text {label}>{name}</text>")
    with open(arguments.out, "w") as out:
        out.write("\n".join(text) + "\n</svg>\n")


if __name__ == "__main__":
    main()
