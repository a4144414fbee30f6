"""Draw docs/_static/peers.svg: accuracy against training time, of labelry and its peers.

python tools/peers_chart.py     reads the tables of docs/results/peers-*.md; it measures nothing
"""

import re
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("svg")
from matplotlib import pyplot as plt

DOCS = Path(__file__).parent.parent / "docs"
ROW = re.compile(
    r"^\| (?P<tool>[^|]+?) \| (?P<p1>[\d.]+)/[^|]+\|[^|]+\| (?P<seconds>[\d.]+) \|", re.M
)
LABELS = re.compile(r"([\d,]+) labels;")
TICKS = (0.5, 1, 2, 5)  # seconds
OURS = [f"labelry Tagger, {quality}" for quality in ("fast", "balanced", "best")]
# Neither black nor white: the picture has no background, and pages are light or dark.
INK, GREY, ACCENT = "#7d8590", "#8c959f", "#3b82c4"
# Where the name of a tool stands, in points from its mark; the others are to the right of theirs.
PLACES = {
    "labelry, fast": (8, -12),
    "labelry, balanced": (10, -9),
    "LibMultiLabel, tree": (-4, 9),
    "napkinXC, 3 trees": (-4, -17),
}


def tables() -> dict[str, dict[str, tuple[float, float]]]:
    """Return P@1 and training seconds of each tool, by dataset."""
    found = {}
    for page in sorted((DOCS / "results").glob("peers-*.md")):
        rows = ROW.finditer(page.read_text())
        found[page.stem] = {row["tool"]: (float(row["p1"]), float(row["seconds"])) for row in rows}
    return found


def main() -> None:
    data = tables()
    shown = {tool for rows in data.values() for tool in rows if "labelry" not in tool} | {*OURS}
    whole = [name for name, rows in data.items() if shown <= set(rows)]
    sizes = [
        int(LABELS.search((DOCS / "results" / f"{name}.md").read_text())[1].replace(",", ""))
        for name in whole
    ]
    at = {}
    for tool in shown:
        p1, seconds = np.array([data[name][tool] for name in whole]).T
        at[tool] = np.exp(np.log(seconds).mean()), p1.mean()

    plt.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "labelry", "font.size": 11}
    plt.rcParams |= {"text.color": INK, "axes.edgecolor": GREY, "axes.labelcolor": INK}
    plt.rcParams |= {"xtick.color": INK, "ytick.color": INK}
    figure, axes = plt.subplots(figsize=(7.4, 3.9))
    axes.plot(*zip(*(at[tool] for tool in OURS), strict=True), color=ACCENT, linewidth=1.5)
    for tool, (seconds, p1) in sorted(at.items()):
        colour = ACCENT if tool in OURS else GREY
        axes.plot(seconds, p1, "o", color=colour, markersize=8 if tool in OURS else 6)
        name = re.sub(r" Tagger| \d+(\.\d+)+", "", tool)
        axes.annotate(
            name,
            (seconds, p1),
            PLACES.get(name, (8, -4)),
            textcoords="offset points",
            color=colour if tool in OURS else INK,
            fontweight="bold" if tool in OURS else "normal",
        )
    axes.set_xscale("log")
    axes.set_xlabel("training time in seconds (geometric mean)")
    axes.set_ylabel("P@1 in percent (mean)")
    axes.set_title(
        f"{len(whole)} datasets of {min(sizes):,} to {max(sizes):,} labels, 2 threads", loc="left"
    )
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xticks(TICKS, map("{:g}".format, TICKS))
    axes.minorticks_off()
    figure.tight_layout()
    out = DOCS / "_static" / "peers.svg"
    figure.savefig(out, transparent=True, metadata={"Date": None})
    out.write_text(out.read_text().replace("'DejaVu Sans'", "system-ui"))


if __name__ == "__main__":
    main()
