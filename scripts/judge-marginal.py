#!/usr/bin/env python3
"""Chooses lmetric-marginal's exponent and whether its cache term is on, and judges the choice on what it was not chosen by.

    judge-marginal.py STUDY.json...

Studies as `scripts/paper.sh` writes them (marginal-*.json): `lmetric` and variants of `lmetric-marginal` on several workloads, at several
rates, with two seeds. A workload is a trace and a model; a cell is a workload at one rate. Workloads are put in order of their names and dealt out in turn:
the first, third, … with the first seed are what is chosen by, the second, fourth, … with the last seed what is judged by. A variant's score is the geometric mean over cells of mean TTFT, mean TPOT and mean end-to-end time, each divided by `lmetric`'s.
The smallest score is chosen. Only the standard library is used.
"""

import json
import math
import sys

FIGURES = [("ttft_ms", "mean"), ("ttft_ms", "p99"), ("tpot_ms", "mean"), ("tpot_ms", "p99"), ("e2e_ms", "mean")]
SCORED = [0, 2, 4]
BASE = "lmetric"


def read(paths):
    """{cell: {seed: {label: figures}}}"""
    cells = {}
    for path in paths:
        with open(path, encoding="utf-8") as file:
            study = json.load(file)
        engine = study["settings"]["fleet"]["parts"][0]["engine"]["model"]["name"]
        for cell in study["cells"]:
            at = f"{cell['fraction']:g} of capacity" if cell.get("fraction") else f"x {cell['rate_scale']:g}"
            name = (f"{study['settings']['trace'].removesuffix('.jsonl')}, {engine}", at)
            figures = cell["outcome"]["figures"]
            told = [figures[kind][what] for kind, what in FIGURES] + [figures["preemptions"]]
            cells.setdefault(name, {}).setdefault(cell["seed"], {})[cell["label"]] = told
    return cells


def ratios(figures, label):
    return [mine / base if base > 0 else 1.0 for mine, base in zip(figures[label][:-1], figures[BASE][:-1])]


def geometric(values):
    return math.exp(sum(math.log(value) for value in values) / len(values))


def mean_ratios(group, label):
    rows = [ratios(figures, label) for _, figures in group]
    return [geometric([row[at] for row in rows]) for at in range(len(FIGURES))]


def score(group, label):
    means = mean_ratios(group, label)
    return geometric([means[at] for at in SCORED])


def percent(ratio):
    return f"{(ratio - 1) * 100:+.0f} %"


def show(title, group, labels):
    print(f"\n{title}: {len(group)} runs of each, relative to {BASE}\n")
    print("| variant | score | mean TTFT | P99 TTFT | mean TPOT | P99 TPOT | end to end | preemptions |")
    print("|---|---|---|---|---|---|---|---|")
    for label in labels:
        figures = " | ".join(percent(ratio) for ratio in mean_ratios(group, label))
        thrown = sum(figures[label][-1] for _, figures in group)
        base = sum(figures[BASE][-1] for _, figures in group)
        print(f"| `{label}` | {score(group, label):.3f} | {figures} | {thrown} ({base}) |")


def main():
    if len(sys.argv) < 2:
        sys.exit("judge-marginal: name the studies, as in judge-marginal.py OUT/marginal-*.json")
    cells = read(sys.argv[1:])
    workloads = sorted({workload for workload, _ in cells})
    chosen_by, judged_by = [], []
    for name in sorted(cells):
        seeds = cells[name]
        if workloads.index(name[0]) % 2 == 0:
            chosen_by.append((name, seeds[min(seeds)]))
        else:
            judged_by.append((name, seeds[max(seeds)]))
    if not chosen_by or not judged_by:
        sys.exit("judge-marginal: one workload cannot be both chosen by and judged by; name more studies")
    everywhere = set.intersection(*(set(figures) for _, figures in chosen_by + judged_by))
    labels = [label for label in chosen_by[0][1] if label in everywhere and label != BASE]
    show("Chosen by", chosen_by, labels)
    best = min(labels, key=lambda label: score(chosen_by, label))
    print(f"\nChosen: `{best}`")
    show("Judged by", judged_by, labels)
    print(f"\n`{best}` in each cell that it is judged by:\n")
    print("| cell | mean TTFT | P99 TTFT | mean TPOT | P99 TPOT | end to end | preemptions |")
    print("|---|---|---|---|---|---|---|")
    for name, figures in judged_by:
        row = " | ".join(percent(ratio) for ratio in ratios(figures, best))
        print(f"| {', '.join(name)} | {row} | {figures[best][-1]} ({figures[BASE][-1]}) |")


if __name__ == "__main__":
    main()
