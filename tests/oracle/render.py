"""usage: render.py FILE: adds to each case of templates.json what Jinja2 makes of it, set up as chat templates expect.

{"python": {"text"} | {"error"}}; the date that strftime_now sees is 26 July 2024.
"""

import datetime
import json
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def strftime_now(form):
    return datetime.datetime(2024, 7, 26).strftime(form)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


def render(env, case):
    inputs = dict(
        messages=case["messages"],
        add_generation_prompt=case["add_generation_prompt"],
        bos_token=case["bos"],
        eos_token=case["eos"],
        **case["kwargs"],
    )
    if case["tools"]:
        inputs["tools"] = case["tools"]
    try:
        return {"text": env.from_string(case["source"]).render(**inputs)}
    except Exception as error:  # a template can raise anything
        return {"error": f"{error}"}


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        cases = json.load(file)
    env = environment()
    for case in cases:
        case["python"] = render(env, case)
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump(cases, file, ensure_ascii=False)
    print(f"{len(cases)} renderings by Jinja2 {jinja2.__version__}")


if __name__ == "__main__":
    main()
