"""Reads YAML with the line of every setting, and reports all mistakes in the text, not only the first.

The values equal those of ``yaml.safe_load``, merge keys included. Mirror files only name connections; the secrets are
in environment variables (I30). So a value that may be a secret is refused, and replaced so that no message shows it.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import yaml

from open_mirroring.config.problems import Mistake, SettingPath

WITHHELD = "(withheld)"
_PLAIN = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")
_SOURCE_COLUMNS = "types"
"""Keys below this setting are names of source columns, which may be called ``password``."""
SECRET_NEXT_STEP = (
    "take it out, change it where it is valid (it was in a file), and name a connection that holds the new one"
)

_KEY = re.compile(
    r"passw(or)?d|passphrase|^pwd$|secret|token|credential|^sas$|sas(url|uri|key)|(account|access|api|private)key"
    r"|connectionstring|connstr"
)

# A URL with user:password@, key=value strings, cloud keys, private keys, JSON web tokens, bearer tokens.
_VALUE = re.compile(
    r"""
      [a-z][a-z0-9+.-]*://[^\s:/@?\#"'\[]*:[^\s]+@
    | (password|passwd|pwd|sslpassword|client_?secret|secret|token
        |(shared)?access_?key|account_?key|api_?key|(?<![a-z])sig|SharedAccessSignature)\s*=\s*[^\s=]
    | \bAWS_SECRET|\bAKIA[0-9A-Z]{16}\b
    | -----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY
    | \beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{5,}
    | \bBearer\s+[A-Za-z0-9._~+/-]{8,}
    """,
    re.VERBOSE | re.IGNORECASE,
)


def key_smells(key: str) -> bool:
    """Whether a setting of the name *key* would hold a secret: ``password``, ``sas_token``, ``AccountKey``, …."""
    return _KEY.search(re.sub(r"[^a-z0-9]", "", key.casefold())) is not None


def text_smells(text: str) -> bool:
    """Whether a string looks like a secret: a URL with a password, ``AccountKey=…``, a private key."""
    return _VALUE.search(text) is not None


class YamlTree:
    """The parsed values and the mistakes of one YAML text.

    *data* is None if the text is not valid YAML. *withheld* are the paths of values that look like secrets.
    """

    def __init__(self, text: str) -> None:
        self.data: Any = None
        self.findings: list[Mistake] = []
        self.withheld: set[SettingPath] = set()
        self.lines: dict[SettingPath, int] = {(): 1}
        self._flattened: set[int] = set()
        # Values are built from nodes: the loader reads nothing.
        self._loader = yaml.SafeLoader("")
        try:
            root = _composed(text)
            if root is not None:
                self.data = self._value(root, ())
        except yaml.reader.ReaderError as error:
            line = text.count("\n", 0, error.position) + 1
            self._broken(line, "the text holds a character that YAML forbids", "remove the control character")
        except yaml.MarkedYAMLError as error:
            self._broken(*_explain(error))
        except RecursionError:
            self._broken(1, "the text is nested too deeply, or an alias contains itself", "use fewer levels")
        # Comments, anchors and invalid YAML may contain secrets, too.
        reported = {finding.line for finding in self.findings if finding.code == "SECRET_IN_FILE"}
        for number, words in enumerate(text.split("\n"), start=1):
            if number not in reported and text_smells(words):
                what = "this line looks as if it held a secret"
                self.findings.append(Mistake((), "SECRET_IN_FILE", what, SECRET_NEXT_STEP, number))

    def is_withheld(self, path: SettingPath) -> bool:
        """Whether the value at *path*, or a value that contains it, was replaced because it looks like a secret."""
        return any(path[:length] in self.withheld for length in range(len(path) + 1))

    def _broken(self, line: int, what: str, next_step: str) -> None:
        self.data = None
        self.findings.append(Mistake((), "CONFIG_INVALID", what, next_step, line))

    def _value(self, node: yaml.Node, path: SettingPath) -> Any:
        if not isinstance(node, yaml.ScalarNode) and node.tag not in _PLAIN:
            raise yaml.constructor.ConstructorError(None, None, "tags are not allowed here", node.start_mark)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            items = []
            for index, item in enumerate(node.value):
                self.lines[(*path, index)] = item.start_mark.line + 1
                items.append(self._value(item, (*path, index)))
            return items
        return self._scalar(node, path)

    def _mapping(self, node: yaml.MappingNode, path: SettingPath) -> dict[str, Any]:
        if id(node) not in self._flattened:
            # Flattening changes the node, and an alias visits it again.
            self._refuse_duplicates(node, path)
            self._loader.flatten_mapping(node)
            self._flattened.add(id(node))
        content: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = self._key(key_node)
            if key is None:
                next_step = "write a plain name, in quotes if it looks like a number, a date or a yes/no"
                self.findings.append(Mistake(path, "CONFIG_INVALID", "a key here is not text", next_step, line))
                continue
            in_columns = bool(path) and path[-1] == _SOURCE_COLUMNS
            if text_smells(key) or (key_smells(key) and not in_columns):
                what = "this setting looks like a secret"
                self.findings.append(Mistake(path, "SECRET_IN_FILE", what, SECRET_NEXT_STEP, line))
                continue
            place = (*path, key)
            self.lines[place] = line
            content[key] = self._value(value_node, place)
        return content

    def _refuse_duplicates(self, node: yaml.MappingNode, path: SettingPath) -> None:
        first: dict[str, int] = {}
        for key_node, _ in node.value:
            key = self._key(key_node)
            line = key_node.start_mark.line + 1
            if key in first:
                named = "this setting" if key_smells(key) or text_smells(key) else repr(key)
                what = f"{named} is here again; it was set in line {first[key]}"
                self.findings.append(Mistake(path, "CONFIG_INVALID", what, "keep one of the two", line))
            elif key is not None:
                first[key] = line

    @staticmethod
    def _key(node: yaml.Node) -> str | None:
        if not isinstance(node, yaml.ScalarNode):
            return None
        # YAML 1.1 reads a plain `on` as true; here it is the name of a setting, as in YAML 1.2.
        is_text = node.tag in ("tag:yaml.org,2002:str", "tag:yaml.org,2002:merge") or node.value == "on"
        return str(node.value) if is_text else None

    def _scalar(self, node: yaml.Node, path: SettingPath) -> Any:
        line = node.start_mark.line + 1
        if text_smells(str(node.value)):
            self.withheld.add(path)
            what = "this value looks like a secret"
            self.findings.append(Mistake(path, "SECRET_IN_FILE", what, SECRET_NEXT_STEP, line))
            return WITHHELD
        try:
            return self._loader.construct_object(node)
        except ValueError:
            # A text such as 2024-13-45 only looks like a date or a number.
            return node.value


def _composed(text: str) -> yaml.Node | None:
    # With libyaml if available: in pure Python a thousand tables take half a second. What it refuses is parsed again.
    with suppress(yaml.YAMLError, ValueError, RecursionError):
        return yaml.compose(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return yaml.compose(text, yaml.SafeLoader)


def _explain(error: yaml.MarkedYAMLError) -> tuple[int, str, str]:
    problem, context = error.problem or "it is malformed", error.context or ""
    # If a list, mapping or key is never closed, its first line is reported as the faulty line.
    is_earlier = "flow" in context or "simple key" in context
    mark = error.context_mark if is_earlier else error.problem_mark or error.context_mark
    # The parser quotes aliases and tags, which are file content (`password: *hunter2`), but also its own words.
    reason = re.sub(r"""(['"])(.*?)\1""", lambda m: m[0] if len(m[2]) < 2 or m[2][0] in "<\\" else "'…'", problem)
    next_step = (
        "correct the indentation (by spaces, no tabs), quotes, brackets or colons there (a space follows each); "
        "text with special characters belongs in quotes"
    )
    return (mark.line + 1 if mark else 1, f"the text is no YAML: {reason}", next_step)
