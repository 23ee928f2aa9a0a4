"""The small faults that `tools/mutants.py` makes in a module: another operator, constant, branch or result."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
}


@dataclass(frozen=True)
class Mutation:
    """One fault: bytes `start` to `end` of the module become `after`. `lines` are those of its statement."""

    kind: str
    start: int
    end: int
    after: str
    lines: range

    def apply(self, source: bytes) -> bytes:
        """The module with the fault in it."""
        return source[: self.start] + self.after.encode() + source[self.end :]


def mutations(path: Path) -> list[Mutation]:
    """Every fault that is made in a module, in the order of its text."""
    source = path.read_bytes()
    begins = [0]
    for line in source.splitlines(keepends=True):
        begins.append(begins[-1] + len(line))
    found = []
    for statement, node in _nodes(ast.parse(source)):
        for kind, place, after in _faults(node):
            start = begins[place.lineno - 1] + place.col_offset
            end = begins[(place.end_lineno or place.lineno) - 1] + (place.end_col_offset or 0)
            text = after if isinstance(place, ast.stmt) else f"({after})"
            found.append(Mutation(kind, start, end, text, _lines(statement)))
    return sorted(found, key=lambda each: (each.start, each.end, each.after))


def _nodes(tree: ast.AST, statement: ast.stmt | None = None) -> Iterator[tuple[ast.stmt, ast.AST]]:
    """Every node that runs, with its statement: no annotations, no decorators, no texts."""
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list", "type_params", "bases"):
            continue
        for node in value if isinstance(value, list) else [value]:
            if not isinstance(node, ast.AST) or isinstance(node, (ast.JoinedStr, ast.Import, ast.ImportFrom)):
                continue
            inside = node if isinstance(node, ast.stmt) else statement
            if inside is not None:
                yield inside, node
            yield from _nodes(node, inside)


def _lines(statement: ast.stmt) -> range:
    """The lines of a statement; of a compound one those of its head."""
    body = getattr(statement, "body", None)
    last = body[0].lineno - 1 if body else statement.end_lineno or statement.lineno
    return range(statement.lineno, max(statement.lineno, last) + 1)


def _faults(node: ast.AST) -> Iterator[tuple[str, ast.stmt | ast.expr, str]]:
    """The kinds of change that a node allows, what is replaced, and by what."""
    match node:
        case ast.If(test=test) | ast.IfExp(test=test):
            yield from (("branch", test, "True"), ("branch", test, "False"))
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            for other in COMPARISONS[type(op)]:
                yield "comparison", node, ast.unparse(ast.Compare(left, [other()], [right]))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            yield "arithmetic", node, ast.unparse(ast.BinOp(left, OPERATORS[type(op)](), right))
        case ast.AugAssign(target=target, op=op, value=value) if type(op) in OPERATORS:
            yield "arithmetic", node, ast.unparse(ast.AugAssign(target, OPERATORS[type(op)](), value))
        case ast.BoolOp(op=op, values=values):
            swapped = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield "and, or", node, ast.unparse(ast.BoolOp(swapped, values))
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert(), operand=operand):
            yield "sign, not", node, ast.unparse(operand)
        case ast.Constant(value=bool() as value):
            yield "constant", node, repr(not value)
        case ast.Constant(value=int() as value):
            yield "constant", node, repr(value + 1)
            if value:
                yield "constant", node, repr(value - 1)
        case ast.Constant(value=float() as value):
            yield "constant", node, repr(2.0 * value if value else 1.0)
        case ast.Return(value=ast.expr()):
            yield "result", node, "return None"
        case ast.Raise() | ast.Expr(value=ast.Call()):
            yield "removed", node, "pass"
