"""Two dialects of docstrings meet on the site: ours and the Google style and Markdown that its tools read.

Our ``Example:`` is their ``Examples:``; unrenamed, a list in its output looks like a broken link. Of our
roles, such as ``:class:``, the name stays.
"""

from __future__ import annotations

import re
from typing import Any

import griffe


class ExampleSections(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            text = re.sub(r"^( *)Example:$", r"\1Examples:", obj.docstring.value, flags=re.MULTILINE)
            obj.docstring.value = re.sub(r":\w+:`[.~]?([^`]+)`", r"`\1`", text)
