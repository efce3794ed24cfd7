"""The help of a command: its purpose, arguments, options and examples, on a screen.

The classes of the commands say it all: the text of a class, the texts below its fields, their
types and defaults. `--help` shows what one needs first, `--help-all` everything.
"""

import ast
import dataclasses
import functools
import inspect
import itertools
import shutil
import textwrap
import types
import typing
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import tyro

SHORT, ALL = frozenset({"-h", "--help"}), "--help-all"
WIDEST = 100
# Where the texts of options begin.
INDENT = 26


class Option(NamedTuple):
    """An option: the field that it sets, how it is written, what it takes, and its text.

    An argument, which is known by its place, has no flag.
    """

    name: str
    flag: str
    metavar: str
    text: str

    @property
    def shown(self) -> str:
        """The option as it is typed."""
        return f"{self.flag} {self.metavar}".strip()


class Section(NamedTuple):
    """Options under a title, with a sentence on them."""

    title: str
    options: Sequence[Option]
    text: str = ""


def is_asked(words: Collection[str]) -> bool:
    """Whether words of a command line ask for help."""
    return ALL in words or not SHORT.isdisjoint(words)


def page(
    prog: str, text: str, sections: Sequence[Section], words: Collection[str], more: str = ""
) -> str:
    """A page of help; `words` tell whether all was asked for, `more` what else there is."""
    summary, others, examples = _parts(text)
    arguments = [each for section in sections for each in section.options if not each.flag]
    usage = " ".join([prog, *(each.metavar for each in arguments), "[OPTIONS]"])
    blocks = [[f"usage: {usage}"], wrapped(summary)]
    if ALL in words:
        blocks += [wrapped(paragraph) for paragraph in others]
    blocks.append([line for each in arguments for line in _lines(each)])
    for section in sections:
        options = [each for each in section.options if each.flag]
        head = wrapped(f"{section.title}: {section.text}".rstrip(": ") + ":" * (not section.text))
        blocks.append([*head, *(line for each in options for line in _lines(each))] * bool(options))
    blocks.append(examples)
    if ALL not in words and (others or more):
        first = prog.split(" [")[0]
        blocks.append(wrapped(f"more: {first} {ALL}{': ' if more else ''}{more}"))
    return "\n\n".join("\n".join(block) for block in blocks if block)


def options_of(
    kind: type[Any], *, default: Any = None, prefix: str = "", hidden: Collection[str] = ()
) -> list[Option]:
    """The options that the fields of a class are, and those of the classes in it.

    `default` is an object with the values that hold where an option is not given.
    """
    found: list[Option] = []
    texts, hints = _texts(kind), typing.get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):
        marks = getattr(hints[field.name], "__metadata__", ())
        if field.name in hidden or tyro.conf.Suppress in marks:
            continue
        value = getattr(default, field.name, field.default)
        name = field.name.replace("_", "-")
        if dataclasses.is_dataclass(value):
            found += options_of(type(value), default=value, prefix=f"{prefix}{name}.")
            continue
        said: Any = next((mark for mark in marks if isinstance(mark, type(tyro.conf.arg()))), None)
        hint = typing.get_args(hints[field.name])[0] if marks else hints[field.name]
        metavar = (said and said.metavar) or field.metadata.get("metavar") or metavar_of(hint)
        text = (said and said.help) or texts.get(field.name, "")
        if tyro.conf.Positional in marks:
            found.append(Option(field.name, "", metavar, text))
            continue
        if hint is bool or bool in typing.get_args(hint):
            metavar = ""
        is_told = said is not None and said.help_behavior_hint == ""
        known = "" if is_told else _default(value)
        flag = f"--{prefix}{(said and said.name) or name}"
        dotted = prefix.replace("-", "_") + field.name
        found.append(Option(dotted, flag, metavar, f"{text} {known}".strip()))
    return found


def metavar_of(hint: Any) -> str:
    """What an option of this type takes."""
    choices = [each for each in typing.get_args(hint) if each is not types.NoneType]
    kind = choices[0] if choices and typing.get_origin(hint) is not Literal else hint
    if typing.get_origin(hint) is tuple:
        kind = hint
    if typing.get_origin(kind) is Literal:
        return "|".join(typing.get_args(kind))
    if typing.get_origin(kind) is tuple:
        first, last = typing.get_args(kind)
        return f"{metavar_of(first)} {'...' if last is ... else metavar_of(last)}"
    return {int: "N", float: "X", bool: "True|False", Path: "PATH"}.get(kind, "NAME")


def wrapped(text: str, indent: int = 0) -> list[str]:
    """Lines within the terminal's width, broken between words alone."""
    width = max(min(shutil.get_terminal_size().columns, WIDEST), 60)
    lines = textwrap.wrap(
        " ".join(text.split()), width - indent, break_long_words=False, break_on_hyphens=False
    )
    return [" " * indent + line for line in lines]


def _parts(text: str) -> tuple[str, list[str], list[str]]:
    """The first paragraph of a class's text, the others, and the lines of its examples."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    examples = [each for each in paragraphs if each.startswith("example")]
    others = [each for each in paragraphs if not each.startswith("example")]
    return others[0], others[1:], [line for each in examples for line in each.splitlines()]


def _lines(option: Option) -> list[str]:
    """An option and its text, which begins below it where the option is long."""
    head, text = f"  {option.shown}", wrapped(option.text, INDENT)
    if len(head) > INDENT - 2 or not text:
        return [head, *text]
    return [f"{head:<{INDENT}}{text[0].lstrip()}", *text[1:]]


def _default(value: Any) -> str:
    """What holds where an option is not given, in brackets; nothing where that is nothing."""
    if value is None or value is dataclasses.MISSING or value == () or value == "":
        return ""
    if isinstance(value, bool):
        return "(yes; --no-... for no)" if value else ""
    shown = " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return f"({shown})"


def _texts(kind: type[Any]) -> dict[str, str]:
    """The texts below the fields of a class and of those that it is derived from."""
    return {name: text for each in reversed(kind.__mro__) for name, text in _own_texts(each)}


@functools.lru_cache(256)
def _own_texts(kind: type[Any]) -> tuple[tuple[str, str], ...]:
    if kind.__module__ == "types":  # of `make_dataclass`, whose source is looked for in vain
        return ()
    try:
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return ()  # a class that was put together has no source
    return tuple(_below_fields(getattr(tree, "body", [])).items())


def _below_fields(body: Iterable[ast.stmt]) -> dict[str, str]:
    return {
        field.target.id: str(text.value.value)
        for field, text in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
    }
