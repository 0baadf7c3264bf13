"""Loans: which buffers are lent out, and which came back."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from lightning_gnnload.pipeline.slots import Slot

Token = TypeVar("Token")


class _Loan(weakref.ref, Generic[Token]):
    token: Token


class Loans(Generic[Token]):
    """Lends buffers over slots, and tells which of them nobody uses any more.

    A buffer comes back when the last tensor over it is gone: in any thread, in the middle of a garbage collection or
    of a signal's handler. All that runs then is ``deque.append``, which is no Python code, so that no Ctrl-C can be
    lost in it. What came back is looked up later, by :meth:`returned`.

    Example:
        >>> import torch
        >>> loans, slot = Loans(), Slot()
        >>> tensor = torch.frombuffer(loans.lend(slot, "a slot's name"), dtype=torch.uint8, count=3)
        >>> len(loans), list(loans.returned())
        (1, [])
        >>> del tensor
        >>> list(loans.returned()), len(loans)
        (["a slot's name"], 0)
    """

    def __init__(self) -> None:
        self._returned: deque[_Loan[Token]] = deque()
        self._out: dict[int, _Loan[Token]] = {}  # a weak reference must be kept for its callback to come

    def lend(self, slot: Slot, token: Token) -> Any:
        """A buffer over ``slot`` for ``torch.frombuffer``; ``token`` names it when it comes back."""
        buffer = slot.buffer()
        loan: _Loan[Token] = _Loan(buffer, self._returned.append)
        loan.token = token
        self._out[id(loan)] = loan
        return buffer

    def returned(self) -> Iterator[Token]:
        """The tokens of what came back since the last call."""
        while self._returned:
            loan = self._returned.popleft()
            self._out.pop(id(loan), None)  # Ctrl-C may have come before it was put there
            yield loan.token

    def __len__(self) -> int:
        """How many are out, or came back unnoticed as yet."""
        return len(self._out)
