#!/usr/bin/env python3
"""Renders cases.py with Jinja2 as `transformers` sets it up and writes golden.json.

Needs jinja2==3.1.6. Usage: make.py [CASES.py [GOLDEN.json]]
"""
import json
import pathlib
import runpy
import sys
from datetime import datetime

import jinja2
import jinja2.ext
import jinja2.sandbox

HERE = pathlib.Path(__file__).parent
NOW = datetime(2026, 3, 7, 4, 5, 6)
MARK = "CONTINUE_FINAL_MESSAGE_TAG "
SPECIAL = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_support"), [], [], body).set_lineno(line)

    def _support(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


env = jinja2.sandbox.ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
env.filters["tojson"] = tojson
env.globals["raise_exception"] = raise_exception
env.globals["strftime_now"] = lambda form: NOW.strftime(form)


def render(case):
    messages = json.loads(json.dumps(case["messages"]))
    if case.get("parts"):
        for message in messages:
            if isinstance(message["content"], str):
                message["content"] = [{"type": "text", "text": message["content"]}]
    final = case.get("continue_final_message", False)
    if final:
        last = messages[-1]
        if isinstance(last["content"], list):
            last["content"][-1]["text"] += MARK
        else:
            last["content"] += MARK
    kwargs = {**SPECIAL, **case.get("kwargs", {})}
    text = env.from_string(case["template"]).render(
        messages=messages, tools=case.get("tools"), documents=case.get("documents"),
        add_generation_prompt=case.get("add_generation_prompt", not final), **kwargs)
    if final:
        at = text.rindex(MARK.strip())
        text = text[:at] if text[at:at + len(MARK)] == MARK else text[:at].rstrip()
    return text


cases = runpy.run_path(sys.argv[1] if len(sys.argv) > 1 else str(HERE / "cases.py"))["CASES"]
for case in cases:
    try:
        case["rendered"] = render(case)
    except Exception as error:  # the template refuses: so must we
        case["error"] = str(error)
out = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else HERE / "golden.json"
out.write_text(json.dumps(cases, ensure_ascii=False, indent=1) + "\n")
print(len(cases), "cases,", sum("error" in case for case in cases), "refused")
