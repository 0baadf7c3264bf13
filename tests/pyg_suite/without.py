"""A pytest plugin that hides libraries, before anything imports them: pyg-lib and torch-sparse, where ours stand in.

Of the two names of Lightning, it hides the one that PyG prefers and its tests do not import.
"""

from __future__ import annotations

import os
import sys

STANDS_IN = os.environ.get("GNNLOAD_STAND_IN", "ours") == "ours"
_HIDDEN = ["lightning", *(["pyg_lib", "torch_sparse"] if STANDS_IN else [])]

sys.modules.update(dict.fromkeys(_HIDDEN))  # type: ignore[arg-type]  # importing them raises ImportError
