#!/usr/bin/env python3
"""Synthetic traces in Mooncake's layout: JSON lines, milliseconds, chained ids of 512-token blocks.

    generate.py toolagent BASE OUT [--seed 1]    BASE and one request more for each of its own: 73 % of these share a 6,144-token
                                                 prefix, the rest a 2,560-token one, with short answers
    generate.py hotspot   BASE OUT [--seed 1]    the first 30 minutes of BASE; in minutes 10 to 15 twice its mean arrivals more, all
                                                 behind one 30,720-token prefix
    generate.py thinking  BASE OUT [--seed 1]    two fifths of the requests of at most 8,192 tokens in the first 20 minutes of BASE; in
                                                 minutes 10 to 14 five requests in two seconds more behind one 30,720-token prefix, with
                                                 answers of about 5,000 tokens
    generate.py agentic   OUT [--seed 1] [--sessions 0.35] [--seconds 1500]
                                                 coding agents: five system prompts, sessions of 2 to 60 turns that grow to 58k tokens

BASE is Mooncake's conversation trace (see README.md). The same seed gives the same file. Only the standard library is used.
"""

import argparse
import json
import random

BLOCK = 512
# ids of synthetic prefixes and tails lie above those of any base trace
FIRST_ID = 20_000_000


class Ids:
    """Hands out ids of blocks."""

    def __init__(self):
        self.next = FIRST_ID

    def take(self, count):
        first = self.next
        self.next += count
        return list(range(first, self.next))


def blocks(tokens):
    return -(-tokens // BLOCK)


def read(path, seconds=float("inf")):
    with open(path, encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines if line.strip()]
    return [row for row in rows if row["timestamp"] < seconds * 1000]


def behind(rng, ids, prefix, timestamp, own_tokens, output):
    """A request that shares `prefix` (whole blocks) and goes on with tokens of its own."""
    tokens = len(prefix) * BLOCK + own_tokens
    return {
        "timestamp": int(timestamp),
        "input_length": tokens,
        "output_length": output,
        "hash_ids": prefix + ids.take(blocks(own_tokens)),
    }


def toolagent(base, rng):
    ids = Ids()
    prefixes = [ids.take(12), ids.take(5)]
    rows = list(base)
    for row in base:
        is_first = rng.random() < 0.726
        own = max(8, int(rng.lognormvariate(6.0, 0.9)))
        output = max(1, int(rng.lognormvariate(2.4, 0.9)))
        moved = row["timestamp"] + rng.uniform(0, 3000)
        rows.append(behind(rng, ids, prefixes[0 if is_first else 1], moved, own, output))
    return rows


def rate_of(base):
    return len(base) / (base[-1]["timestamp"] / 1000)


def burst(base, rng, minutes, rate, prefix_blocks, own_mean, output_mean, output_least):
    ids = Ids()
    prefix = ids.take(prefix_blocks)
    begin, end = minutes
    rows = list(base)
    at = begin * 60.0
    while True:
        at += rng.expovariate(rate)
        if at >= end * 60:
            return rows
        own = int(rng.uniform(0.2, 1.8) * own_mean)
        output = max(output_least, int(rng.gauss(output_mean, output_mean / 3)))
        rows.append(behind(rng, ids, prefix, at * 1000, own, output))


def agentic(rng, sessions, seconds):
    ids = Ids()
    agents = []
    for _ in range(5):
        tokens = rng.randint(4_000, 14_000)
        agents.append((tokens, ids.take(tokens // BLOCK)))
    rows = []
    at = 0.0
    while True:
        at += rng.expovariate(sessions)
        if at >= seconds:
            return rows
        system, known = agents[rng.randrange(len(agents))]
        # a session only appends: a block keeps its id once it is full
        known = list(known)
        tokens = system + int(rng.lognormvariate(6.5, 0.8))
        now = at
        for _ in range(min(60, 2 + int(rng.expovariate(1 / 18)))):
            if tokens > 58_000:
                break
            known += ids.take(tokens // BLOCK - len(known))
            tail = ids.take(1) if tokens % BLOCK else []
            output = max(8, int(rng.lognormvariate(5.0, 0.8)))
            rows.append(
                {
                    "timestamp": int(now * 1000),
                    "input_length": tokens,
                    "output_length": output,
                    "hash_ids": known + tail,
                }
            )
            # the answer, then what a tool or a person adds
            tokens += output + max(16, int(rng.lognormvariate(6.6, 1.1)))
            now += output * 0.02 + (rng.expovariate(1 / 4) if rng.random() < 0.8 else rng.expovariate(1 / 40))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["toolagent", "hotspot", "thinking", "agentic"])
    parser.add_argument("files", nargs="+", metavar="[BASE] OUT")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sessions", type=float, default=0.35, help="sessions a second (agentic)")
    parser.add_argument("--seconds", type=float, default=1500, help="length (agentic)")
    args = parser.parse_args()
    wanted = 1 if args.kind == "agentic" else 2
    if len(args.files) != wanted:
        parser.error(f"{args.kind} needs {'OUT' if wanted == 1 else 'BASE and OUT'}")
    rng = random.Random(args.seed)
    if args.kind == "agentic":
        rows = agentic(rng, args.sessions, args.seconds)
    elif args.kind == "toolagent":
        rows = toolagent(read(args.files[0]), rng)
    elif args.kind == "hotspot":
        base = read(args.files[0], 1_800)
        rows = burst(base, rng, (10, 15), 2 * rate_of(base), 60, 800, 700, 16)
    else:
        base = [row for row in read(args.files[0], 1_200) if row["input_length"] <= 8_192 and rng.random() < 0.4]
        rows = burst(base, rng, (10, 14), 2.5, 60, 1_500, 5_000, 2_000)
    rows.sort(key=lambda row: row["timestamp"])
    with open(args.files[-1], "w", encoding="utf-8") as out:
        for row in rows:
            out.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
