"""Describes the object in a pickle without making it.

A pickle is a program that can call any function. Here its operations only build a description of the object, in which names and
calls are records.
"""

from __future__ import annotations

import pickletools

import attrs

_ARGUMENTS = (
    *("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"),
    *("SHORT_BINUNICODE", "BINUNICODE", "SHORT_BINBYTES", "BINBYTES", "BYTEARRAY8"),
)
"""Operations that push their argument on the stack."""
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_MARKS_AND_MEMO = ("MARK", "POP", "MEMOIZE", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET")
_TUPLES = {"TUPLE": None, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_FILL = {"APPEND": 1, "APPENDS": None, "SETITEM": 2, "SETITEMS": None}
"""Operation -> the number of its operands; None: those after the last mark."""


@attrs.frozen
class Name:
    """A function or class."""

    text: str


@attrs.define
class Call:
    """The result of calling `name` with arguments; `state` has its attributes, and `entries` those of a mapping."""

    name: str
    arguments: tuple[object, ...]
    state: object = None
    entries: dict[object, object] = attrs.field(factory=dict)

    def attribute(self, name: str) -> object:
        """Raises ValueError if there is no such attribute."""
        if not isinstance(self.state, dict) or name not in self.state:
            raise ValueError(f"{self.name} has no {name}")
        return self.state[name]


def described(content: bytes) -> object:
    """Return the description of the object in a pickle.

    Raises:
        ValueError: an operation is not supported, or the pickle is damaged. A damaged pickle may also cause an IndexError,
            a KeyError or a TypeError.
    """
    machine = _Machine()
    for operation, argument, _ in pickletools.genops(content):
        machine.do(operation.name, argument)
    return machine.stack[-1]


class _Machine:
    """The stack, the marks and the memo of a pickle."""

    def __init__(self) -> None:
        self.stack, self.marks, self.memo = list[object](), list[int](), dict[object, object]()

    def do(self, operation: str, argument: object) -> None:
        """Do one operation. Raises ValueError or IndexError if it is unknown or lacks operands."""
        stack = self.stack
        if operation in _ARGUMENTS:
            stack.append(argument)
        elif operation in _CONSTANTS:
            stack.append(_CONSTANTS[operation])
        elif operation in _TUPLES:
            stack.append(tuple(self._taken(_TUPLES[operation])))
        elif operation in ("EMPTY_DICT", "EMPTY_LIST"):
            stack.append({} if operation == "EMPTY_DICT" else [])
        elif operation in _FILL:
            self._fill(operation)
        elif operation in _MARKS_AND_MEMO:
            self._mark_or_memo(operation, argument)
        elif operation not in ("PROTO", "FRAME", "STOP"):
            stack.append(self._object(operation, argument))

    def _mark_or_memo(self, operation: str, argument: object) -> None:
        """Do an operation with the marks or the memo, or remove the last operand."""
        if operation == "MARK":
            self.marks.append(len(self.stack))
        elif operation == "POP":
            self._taken(1)
        elif operation in ("BINGET", "LONG_BINGET"):
            self.stack.append(self.memo[argument])
        else:
            self.memo[len(self.memo) if operation == "MEMOIZE" else argument] = self.stack[-1]

    def _taken(self, count: int | None) -> list[object]:
        """Remove and return the last `count` operands, or those after the last mark."""
        first = self.marks.pop() if count is None else len(self.stack) - count
        if first < 0:
            raise ValueError("operands are missing")
        taken = self.stack[first:]
        del self.stack[first:]
        return taken

    def _fill(self, operation: str) -> None:
        """Append operands to a list, or write pairs of them to a dict."""
        filled, target = self._taken(_FILL[operation]), self.stack[-1]
        if isinstance(target, list) and operation.startswith("APPEND"):
            target.extend(filled)
        elif isinstance(target, dict | Call) and operation.startswith("SETITEM"):
            entries = target if isinstance(target, dict) else target.entries
            entries.update(zip(map(_key, filled[::2]), filled[1::2], strict=True))
        else:
            raise ValueError(f"{operation} to something else than a list or dict")

    def _object(self, operation: str, argument: object) -> Name | Call:
        """Return the record of a name or of an object. Raises ValueError if the operation is unknown or has other operands."""
        if operation == "GLOBAL":
            return Name(str(argument).replace(" ", "."))
        first, second = self._taken(2)
        if operation == "STACK_GLOBAL" and isinstance(first, str) and isinstance(second, str):
            return Name(f"{first}.{second}")
        if operation in ("REDUCE", "NEWOBJ") and isinstance(first, Name | Call) and isinstance(second, tuple):
            return _called(first, second)
        if operation == "BUILD" and isinstance(first, Call):
            first.state = second
            return first
        raise ValueError(f"unexpected operation {operation}")


def _key(key: object) -> str | int:
    """Check the key of a dict. A tuple that holds tuples twice, again and again, would take years to hash or to print."""
    if not isinstance(key, str | int):
        raise ValueError("a key is neither a text nor a whole number")
    return key


def _called(callee: Name | Call, arguments: tuple[object, ...]) -> Call:
    """Return the record of a call. Calls of cloudpickle that set the attributes of a function return the function."""
    name = callee.text if isinstance(callee, Name) else callee.name
    if name.rpartition(".")[2] == "_function_setstate":
        function, states = arguments
        if not isinstance(function, Call) or not isinstance(states, tuple):
            raise ValueError("attributes of something else than a function")
        function.state = states[1]
        return function
    return Call(name, arguments)
