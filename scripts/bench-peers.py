#!/usr/bin/env python3
"""Medians of the runs that bench-peers.sh left in a folder, as a table and as JSON.

bench-peers.py FOLDER OUT
"""

import json
import os
import pathlib
import re
import statistics
import sys

SIDES = ("lmetric", "dynamo")
KINDS = ("p50", "p99", "value")
WORKLOAD = re.compile(r"^\d+ events, \d+ blocks, \d+ \(endpoint, block\) pairs$", re.MULTILINE)


def runs(folder, side):
    """All figures of a side: name → unit and the runs of p50, p99 and value."""
    figures = {}
    for path in sorted(folder.glob(f"{side}.*.json")):
        for figure in json.loads(path.read_text(encoding="utf-8")):
            kept = figures.setdefault(figure["name"], {"unit": figure["unit"], "runs": {kind: [] for kind in KINDS}})
            for kind in KINDS:
                if figure[kind] is not None:
                    kept["runs"][kind].append(figure[kind])
    return figures


def workloads(folder, side):
    """What a side says it was fed."""
    return {said for path in folder.glob(f"{side}.*.pick-*.log") for said in WORKLOAD.findall(path.read_text(encoding="utf-8"))}


def median(figure, kind):
    values = figure["runs"][kind]
    return statistics.median(values) if values else None


def flat(figures):
    """As each program writes its own, with the runs beside."""
    return [
        {"name": name, "unit": figure["unit"], **{kind: median(figure, kind) for kind in KINDS}, "runs": figure["runs"]}
        for name, figure in figures.items()
    ]


def number(value):
    return "–" if value is None else f"{value:,.0f}" if value >= 1000 else f"{value:,.1f}"


def spread(figure, kind):
    values = figure["runs"][kind]
    return f"{number(min(values))}–{number(max(values))}" if len(values) > 1 else ""


def rows(ours, theirs):
    for name, figure in ours.items():
        if name not in theirs:
            continue
        for kind in KINDS:
            mine, other = median(figure, kind), median(theirs[name], kind)
            if mine is None or other is None:
                continue
            better = mine / other if figure["unit"].endswith("/s") else other / mine
            label = name if kind == "value" else f"{name} {kind}"
            yield label, figure["unit"], number(mine), spread(figure, kind), number(other), spread(theirs[name], kind), f"{better:.1f} x"


def alone(ours, theirs):
    for name, figure in theirs.items():
        for kind in KINDS:
            value = median(figure, kind)
            if name not in ours and value is not None:
                yield f"{name} {kind}".removesuffix(" value"), figure["unit"], number(value), spread(figure, kind)


def show(head, table):
    widths = [max(len(row[column]) for row in [head, *table]) for column in range(len(head))]
    for row in [head, *table]:
        print("  ".join(cell.ljust(width) if column < 2 else cell.rjust(width) for column, (cell, width) in enumerate(zip(row, widths))).rstrip())


def main():
    folder, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    fed = {side: workloads(folder, side) for side in SIDES}
    if fed["lmetric"] != fed["dynamo"] or len(fed["lmetric"]) != 1:
        sys.exit(f"bench-peers: the two sides were not fed the same workload: {fed}; bench/src/workload.rs and bench/dynamo/src/workload.rs must agree")
    found = {side: runs(folder, side) for side in SIDES}
    for name, figure in found["lmetric"].items():
        unit = found["dynamo"].get(name, figure)["unit"]
        if unit != figure["unit"]:
            sys.exit(f"bench-peers: {name} is in {figure['unit']} here and in {unit} there; make them agree")
    table = list(rows(found["lmetric"], found["dynamo"]))
    if not table:
        sys.exit("bench-peers: no figure was measured on both sides")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({side: flat(found[side]) for side in SIDES}, indent=2) + "\n", encoding="utf-8")
    print(f"{fed['lmetric'].pop()}; {os.cpu_count()} cores; medians, and the spread of the runs")
    show(("figure", "unit", "lmetric", "", "dynamo", "", "better by"), table)
    print("\nDynamo, measured in other ways (bench/dynamo/README.md)")
    show(("figure", "unit", "dynamo", ""), list(alone(found["lmetric"], found["dynamo"])))
    print(f"in {out}")


if __name__ == "__main__":
    main()
